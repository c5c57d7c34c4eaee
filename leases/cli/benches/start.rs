//! The time that a command takes alone, under `flock` and under `keylatch run`; and the time of `keylatch ls`.
//!
//! Each round runs all of them, one after the other. `cargo bench --bench start -- 500` does 500 rounds instead of 200.

use std::{
    env, fs,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

const KEYLATCH: &str = env!("CARGO_BIN_EXE_keylatch");

fn main() -> ExitCode {
    let rounds = env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(200).max(1);
    let folder = env::temp_dir().join(format!("keylatch-start-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let lock = folder.join("lock").display().to_string();
    let cases: [(&str, Vec<&str>); 4] = [
        ("true", vec!["true"]),
        ("flock FILE true", vec!["flock", &lock, "true"]),
        ("keylatch run NAME -- true", vec![KEYLATCH, "run", "name", "--", "true"]),
        ("keylatch ls", vec![KEYLATCH, "ls"]),
    ];
    let run = |words: &[&str]| {
        let start = Instant::now();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("KEYLATCH_ENGINE", format!("sqlite:{}", folder.join("leases.db").display()));
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then(|| start.elapsed())
    };
    let mut times: Vec<Option<Vec<Duration>>> = vec![Some(Vec::new()); cases.len()];
    // The first round makes the files, and is not counted.
    for round in 0..=rounds {
        for ((_, words), times) in cases.iter().zip(&mut times) {
            match (run(words), &mut *times) {
                (Some(time), Some(times)) if round > 0 => times.push(time),
                (Some(_), _) => {}
                (None, times) => *times = None,
            }
        }
    }
    let _ = fs::remove_dir_all(&folder);
    println!("{:27}{:>9}{:>9}{:>9}   ms, of {rounds} rounds", "", "least", "median", "p90");
    for ((name, _), times) in cases.iter().zip(&mut times) {
        let Some(times) = times else {
            println!("{name:27}   failed, or is not installed");
            continue;
        };
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!("{name:27}{:9.2}{:9.2}{:9.2}", at(0.0), at(0.5), at(0.9));
    }
    ExitCode::from(u8::from(times[2].is_none()))
}
