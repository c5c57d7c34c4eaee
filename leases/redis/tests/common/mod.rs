//! A private server for the tests of one binary.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{net::SocketAddr, time::Duration};

use futures_lite::StreamExt;
use keylatch_lease::{Leases, Resource};
use keylatch_lease_conformance::{
    ByHand, Failure, Heard,
    servers::{Messages, PrivateServer, Settings, TestServer},
};
use keylatch_lease_redis::{Options, Redis};
use redis::{Client, FromRedisValue};

pub(crate) const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");

pub(crate) struct Server(PrivateServer);

impl Server {
    pub(crate) fn start() -> Self {
        Server(PrivateServer::new(SCRIPT, "redis").start())
    }

    /// Starts a server with this configuration instead of the script's.
    pub(crate) fn start_with(config: &str) -> Self {
        Server(PrivateServer::new(SCRIPT, "redis").file("redis.conf", config).start())
    }

    pub(crate) fn client(&self) -> Client {
        client(self.address())
    }

    /// Runs a command of these words on a new connection.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut connection = self.client().get_connection().unwrap();
        redis::cmd(command[0]).arg(&command[1..]).query(&mut connection).unwrap()
    }

    pub(crate) fn leases(&self, options: Options) -> Leases<Redis> {
        Leases::with_engine(options.connect(self.client()))
    }
}

impl TestServer for Server {
    type Engine = Redis;
    type Client = Client;

    const NAME: &'static str = "Redis";

    fn set_up() -> Self {
        Server::start()
    }

    fn private(&self) -> &PrivateServer {
        &self.0
    }

    fn connect(settings: Settings, address: SocketAddr) -> Redis {
        let Settings { namespace, timeout, fallback, sweeps, quarantine } = settings;
        let options = Redis::in_namespace(namespace).timeout(timeout).fallback(fallback).sweeps(sweeps);
        options.quarantine(quarantine).connect(client(address))
    }

    async fn ready(engine: &Redis) -> Result<(), Failure> {
        Ok(engine.ready().await?)
    }

    async fn open(engine: &Redis) -> Result<(), Failure> {
        Ok(engine.init().await?)
    }

    async fn client(&self) -> Client {
        Server::client(self)
    }

    fn empty(&self) -> Result<(), Failure> {
        let () = self.ask(&["FLUSHALL"]);
        Ok(())
    }

    /// Returns the ways to take leases away by hand. The last one also takes away the namespace's mark.
    fn by_hand() -> Vec<ByHand> {
        let way = |what| ByHand { what, heard: Heard::WhenAsked, notice: Duration::from_millis(500) };
        vec![way("fields"), way("keys")]
    }

    async fn take_away(&self, namespace: &str, what: &str) -> Result<(), Failure> {
        let leases = key(namespace, "leases");
        if what == "keys" {
            let () = self.ask(&["DEL", &leases, &key(namespace, "ends"), &key(namespace, "owned")]);
            return Ok(());
        }
        let fields: Vec<String> = self.ask(&["HKEYS", &leases]);
        for field in fields.iter().filter(|field| *field != "meta") {
            let () = self.ask(&["HDEL", &leases, field]);
        }
        Ok(())
    }

    /// Returns the number of a namespace's connections, each of which listens to the namespace's channel.
    fn connections(&self, namespace: &str) -> Option<u64> {
        let (_, count): (String, u64) = self.ask(&["PUBSUB", "NUMSUB", &key(namespace, "free")]);
        Some(count)
    }

    async fn pass(&self, namespace: &str, time: Duration) {
        let script = "
            for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
                local token, since, tail, rest = string.match(redis.call('HGET', KEYS[1], field), '^(%d+) (%d+) (%S+) (.*)$')
                if field ~= 'meta' then
                    since = string.format('%.0f', since - ARGV[1])
                    if tail ~= '-' then
                        tail = string.format('%.0f', tail - ARGV[1])
                        redis.call('ZADD', KEYS[2], tail, field)
                    end
                    redis.call('HSET', KEYS[1], field, token .. ' ' .. since .. ' ' .. tail .. ' ' .. rest)
                end
            end";
        let [leases, ends] = ["leases", "ends"].map(|name| key(namespace, name));
        let () = self.ask(&["EVAL", script, "2", &leases, &ends, &time.as_micros().to_string()]);
    }

    async fn is_wanted(&self, namespace: &str, resource: &Resource) -> bool {
        let name = format!("{}:{}{}", resource.entity().len(), resource.entity(), resource.key());
        let lease: String = self.ask(&["HGET", &key(namespace, "leases"), &name]);
        lease.split(' ').nth(3) == Some("1")
    }

    /// Cuts the connections of all namespaces.
    async fn cut(&self, _: &str) -> u64 {
        self.ask(&["CLIENT", "KILL", "TYPE", "pubsub"])
    }

    async fn listen(&self, namespace: &str) -> Messages {
        let mut listening = self.client().get_async_pubsub().await.unwrap();
        listening.subscribe(key(namespace, "free")).await.unwrap();
        let told = listening.into_on_message().map(|message| {
            // A payload is, for example, "r7 0:report".
            let payload: String = message.get_payload().unwrap();
            let (letter, rest) = payload.split_at(1);
            let (token, name) = rest.split_once(' ').unwrap();
            format!("{letter} {token} {}", name.strip_prefix("0:").unwrap())
        });
        told.boxed()
    }
}

/// Returns a key of a namespace whose own name needs no escaping.
fn key(namespace: &str, name: &str) -> String {
    format!("{{keylatch:{namespace}}}:{name}")
}

pub(crate) fn client(address: SocketAddr) -> Client {
    Client::open(format!("redis://{address}")).unwrap()
}
