//! Replays the corpus and some random bytes without a fuzzer: this needs no nightly compiler, and a panic shows where
//! the fault is.

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files = 0;
    for file in std::fs::read_dir(&corpus).expect("the target has a corpus") {
        run(&std::fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 10, "{}: only {files} files", corpus.display());
}

fn random(inputs: u64, run: fn(&[u8])) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    for _ in 0..inputs {
        let length = 2 * usize::from(next());
        let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
        run(&bytes);
    }
}

macro_rules! targets {
    ($($target:ident),+) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target), keylatch_fuzz::$target::run);
            random(1_000, keylatch_fuzz::$target::run);
        }
    )+};
}

targets!(schedule, hostile_keys, state_word);
