//! Tests that a batch gives its requests the answers that they would have got alone. The same random requests are sent
//! to two namespaces, with the same random mishaps.

use std::{collections::BTreeMap, time::Duration};

use keylatch_lease_conformance::servers::PrivateServer;
use redis::{Commands, Connection, FromRedisValue, PubSub, RedisResult};

use super::{ACQUIRE, DECIDE, RELEASE, SWEEP, Script};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/run");
const RESOURCES: u64 = 12;
const HOUR: u64 = 3_600_000_000;

/// A generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A request, except for its token, which differs between the namespaces.
#[derive(Debug)]
struct Request {
    resource: String,
    owner: &'static str,
    wish: String,
    has_token: bool,
}

impl Request {
    fn random(random: &mut Random, resource: u64) -> Self {
        let resource = format!("0:{resource}");
        if random.below(3) == 0 {
            let owner = random.one_of(&["jane", "joe", ""]);
            let has_token = owner.is_empty() || random.below(2) == 0;
            let wish = random.one_of(&["r", "r", "r7"]).to_owned();
            return Request { resource, owner, has_token: has_token && wish == "r", wish };
        }
        let letter = random.one_of(&["a", "a", "f", "m", "n", "A", "A", "F", "M", "N"]);
        let terms = [format!("{HOUR} - s:1:-"), format!("{HOUR} {} u:1:2", 2 * HOUR), "- - n:-:-".into()];
        let term = if random.below(5) == 0 { "  -:-:-".into() } else { terms[random.below(3) as usize].clone() };
        Request { resource, owner: random.one_of(&["jane", "joe"]), wish: letter.to_owned() + &term, has_token: false }
    }
}

struct Namespace {
    connection: Connection,
    messages: PubSub<'static>,
    keys: [String; 3],
    channel: String,
    run: String,
}

/// The stored leases: of each resource, the token, start, end, flag, policy and owner.
type Stored = BTreeMap<String, Vec<String>>;

impl Namespace {
    fn new(server: &PrivateServer, name: &str) -> Self {
        let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
        let channel = format!("{{{name}}}:free");
        let mut messages = Box::leak(Box::new(client.get_connection().unwrap())).as_pubsub();
        messages.subscribe(&channel).unwrap();
        messages.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let connection = client.get_connection().unwrap();
        let keys = ["leases", "ends", "owned"].map(|key| format!("{{{name}}}:{key}"));
        Namespace { connection, messages, keys, channel, run: "run".into() }
    }

    fn ask<T: FromRedisValue>(&mut self, script: &Script, words: &[String]) -> RedisResult<T> {
        let mut command = redis::cmd("EVAL");
        command.arg(&script.source).arg(3).arg(&self.keys);
        if script.hash != SWEEP.hash {
            command.arg(&self.run).arg(HOUR).arg("0").arg(&self.channel);
        }
        command.arg(words).query(&mut self.connection)
    }

    fn words(&mut self, Request { resource, owner, wish, has_token }: &Request) -> [String; 3] {
        let token = if *has_token { self.stored().get(resource).map(|lease| lease[0].clone()) } else { None };
        [resource.clone(), (*owner).to_owned(), wish.clone() + &token.unwrap_or_default()]
    }

    fn alone(&mut self, request: &Request) -> String {
        let words = self.words(request);
        let script = if request.wish.starts_with('r') { &RELEASE } else { &ACQUIRE };
        self.ask(script, &words).unwrap_or_else(|error| {
            assert!(error.to_string().contains("is not a lease"), "{error}");
            "error".into()
        })
    }

    fn together(&mut self, requests: &[Request]) -> Vec<String> {
        let words: Vec<_> = requests.iter().flat_map(|request| self.words(request)).collect();
        let mut answers: Vec<String> = self.ask(&DECIDE, &words).unwrap();
        for (answer, request) in answers.iter_mut().zip(requests).filter(|(answer, _)| answer.is_empty()) {
            *answer = self.alone(request);
        }
        answers
    }

    fn stored(&mut self) -> Stored {
        let all: BTreeMap<String, String> = self.connection.hgetall(&self.keys[0]).unwrap();
        let words = |text: String| text.splitn(6, ' ').map(str::to_owned).collect();
        all.into_iter().filter(|(name, _)| name != "meta").map(|(name, text)| (name, words(text))).collect()
    }

    /// Returns what is stored, except for the tokens and the server's run. Times are in half hours since `start`.
    fn seen(&mut self, start: u64) -> (Stored, [BTreeMap<String, String>; 2], Vec<String>) {
        let coarse = |time: &String| {
            let since = |time: f64| ((time - start as f64) / (HOUR / 2) as f64).round().to_string();
            time.parse().map_or_else(|_| time.clone(), since)
        };
        let mut leases = self.stored();
        for lease in leases.values_mut().filter(|lease| lease.len() == 6) {
            lease[0].clear();
            (lease[1], lease[2]) = (coarse(&lease[1]), coarse(&lease[2]));
        }
        let meta: Option<String> = self.connection.hget(&self.keys[0], "meta").unwrap();
        let meta = meta.iter().flat_map(|meta| meta.split(' ').skip(2).take(1)).map(|time| coarse(&time.to_owned()));
        let meta = meta.collect();
        let indices = [1, 2].map(|key| -> BTreeMap<String, String> {
            let all: Vec<(String, String)> = self.connection.zrange_withscores(&self.keys[key], 0, -1).unwrap();
            all.into_iter().map(|(member, score)| (member, coarse(&score))).collect()
        });
        (leases, indices, meta)
    }

    /// Returns the letters and resources of the messages since the last call.
    fn told(&mut self) -> Vec<String> {
        let () = self.connection.publish(&self.channel, "over").unwrap();
        let mut all = Vec::new();
        loop {
            let message: String = self.messages.get_message().unwrap().get_payload().unwrap();
            if message == "over" {
                all.sort();
                return all;
            }
            let (token, resource) = message.split_once(' ').unwrap_or_default();
            all.push(format!("{} {resource}", &token[..token.len().min(1)]));
        }
    }

    /// Inflicts a mishap on a lease, or on all of them.
    fn suffer(&mut self, what: u64, resource: u64, start: u64) {
        let (name, [leases, ends, owned]) = (format!("0:{resource}"), self.keys.clone());
        let lease = self.stored().get(&name).filter(|lease| lease.len() == 6).cloned();
        let meta: Option<String> = self.connection.hget(&leases, "meta").unwrap();
        match (what, lease, meta) {
            // The lease has expired.
            (0..5, Some(lease), _) if lease[2] != "-" => {
                let (since, tail) = (start - 5 * HOUR, start - HOUR);
                let text = format!("{} {since} {tail} 0 {} {}", lease[0], lease[4], lease[5]);
                let () = self.connection.hset(&leases, &name, text).unwrap();
                let () = self.connection.zadd(&ends, &name, tail).unwrap();
            }
            // The lease is deleted by hand, or overwritten.
            (5, ..) => self.connection.hdel(&leases, &name).unwrap(),
            (6, ..) => self.connection.hset(&leases, &name, "something else").unwrap(),
            // The quarantine begins or ends; tokens are in doubt, or not.
            (7..12, _, Some(meta)) => {
                let words: Vec<_> = meta.split(' ').collect();
                let barred = if what == 7 { start + 2 * HOUR } else { 0 };
                let doubt = if what == 8 { words[1] } else { "0" };
                let meta = ["v1", words[1], &barred.to_string(), doubt, words[4], words[5]].join(" ");
                let () = self.connection.hset(&leases, "meta", meta).unwrap();
            }
            // Everything is gone, or the server was restarted.
            (12, ..) => self.connection.del(&[leases, ends, owned]).unwrap(),
            (13, ..) => self.run.push('x'),
            _ => {}
        }
    }
}

/// Leaves out what differs between the namespaces: tokens and times. Of a lease's remaining time it keeps the number of
/// digits.
fn rough(answer: &str) -> String {
    let words: Vec<_> = answer.split(' ').collect();
    match (&answer[..1], &words[..]) {
        ("g" | "r", [_, _, remaining]) => format!("{} {}", &answer[..1], remaining.len()),
        ("b", [remaining, owner]) => format!("b {} {owner}", remaining.len()),
        ("q", [_]) => "q".into(),
        _ => answer.into(),
    }
}

#[test]
fn a_batch_decides_as_its_requests_would_alone() {
    let server = PrivateServer::new(SERVER, "redis").start();
    let (mut one, mut other) = (Namespace::new(&server, "one"), Namespace::new(&server, "other"));
    let time: (u64, u64) = redis::cmd("TIME").query(&mut one.connection).unwrap();
    let (start, mut random) = (time.0 * 1_000_000, Random(88_172_645_463_325_252));
    let mut letters = BTreeMap::new();
    for step in 0..1500 {
        for _ in 0..random.below(4) {
            let (what, resource) = (random.below(14), random.below(RESOURCES));
            // The whole namespace suffers less often.
            if what < 12 || random.below(8) == 0 {
                one.suffer(what, resource, start);
                other.suffer(what, resource, start);
            }
        }
        let first = random.below(RESOURCES);
        let requests: Vec<_> =
            (0..1 + random.below(RESOURCES)).map(|i| Request::random(&mut random, (first + i) % RESOURCES)).collect();
        let alone: Vec<_> = requests.iter().map(|request| rough(&one.alone(request))).collect();
        let answers = other.together(&requests);
        let together: Vec<_> = answers.iter().map(|answer| rough(answer)).collect();
        assert_eq!(alone, together, "step {step}: {requests:#?}");
        assert_eq!(one.told(), other.told(), "step {step}: {requests:#?}");
        // In a batch, each tenure has a greater token than those before it.
        let granted = answers.iter().filter(|answer| answer.len() > 1 && answer.starts_with('g'));
        let tokens: Vec<u64> = granted.map(|answer| answer[1..].split(' ').next().unwrap().parse().unwrap()).collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{answers:?}");
        for answer in together {
            *letters.entry(answer[..1].to_owned()).or_insert(0) += 1;
        }
        // The grants in the two namespaces remove expired leases in different orders, so remove the rest before
        // comparing.
        for namespace in [&mut one, &mut other] {
            let _: u64 = namespace.ask(&SWEEP, &["1000".to_owned()]).unwrap();
        }
        assert_eq!(one.seen(start), other.seen(start), "step {step}: {requests:#?}");
    }
    assert!(letters.len() == 6 && letters.values().all(|&count| count > 100), "{letters:?}");
}
