//! A write with fred that a fence checks.

use fred::{clients::Client, error::Error, interfaces::LuaInterface};
use keylatch_lease::Grant;

/// Stores the text of an article with the token of the lease, unless the article has a greater token.
pub const FENCE: &str = "
    if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return 0 end
    redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'body', ARGV[2])
    return 1
";

/// Saves the article. Returns `false`, and changes nothing, if a later tenure has written to it.
pub async fn save(client: &Client, grant: &Grant, article: &str, body: &str) -> Result<bool, Error> {
    client.eval(FENCE, article, vec![grant.token().to_string(), body.to_owned()]).await
}
