//! Elections: three processes, of which one leads. The leader resigns, is killed, is stopped for longer than its lease
//! lasts, and is cut off from the server. Each time, another process becomes the leader. Every write goes through a
//! fence, which refuses what a leader writes after its successor has written.
//!
//! ```text
//! cargo run --release --example leader
//! cargo run --release --example leader --features redis -- --engine redis
//! ```
//!
//! With SQLite there is no server, so nobody is cut off. The program exits with an error if nobody leads again.

#[cfg(unix)]
mod candidate;
#[cfg(unix)]
mod stage;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[cfg(unix)]
fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [stage::CANDIDATE, name, address] => candidate::run(name, address),
        [] | ["--engine", "sqlite"] => stage::on_sqlite(),
        #[cfg(feature = "redis")]
        ["--engine", "redis"] => stage::on_redis(),
        _ => Err("usage: leader [--engine sqlite|redis], and `--features redis` before that for redis".into()),
    }
}

#[cfg(not(unix))]
fn main() -> Result<(), Error> {
    Err("the processes are killed and stopped by Unix signals".into())
}
