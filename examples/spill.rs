//! A cache in front of files that survives `kill -9`: the map says which value to evict, and the program first writes
//! that value to its file.
//!
//! ```text
//! cargo run --release --example spill
//! ```
//!
//! The cache has a few values in memory, and the rest in files. A write is appended to a journal and then acknowledged;
//! the value stays in memory, and is written to its file when it is evicted, or from the journal when the cache is
//! opened again. Each value is written, read and evicted under its key's lock, so no caller reads a file that is being
//! replaced, or one that is older than the value in memory.
//!
//! The program starts itself as a child, again and again. The child's threads read and write until the parent kills it:
//! after a random number of lines of its output, or while it recovers. A thread fails if it reads a value older than
//! one that was acknowledged before. The parent fails if a value is torn, or is missing although its write was
//! acknowledged.
//!
//! This is for crashes of the process. To survive a crash of the machine, call `sync_data` on the journal before each
//! acknowledgement, and on each file before it is renamed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use keylatch::LockMap;

const KEYS: u64 = 64;
const IN_MEMORY: usize = 12;
const THREADS: u64 = 4;
const KILLS: u64 = 40;
const LIMIT: Duration = Duration::from_secs(120);

/// A value that is stored: its text begins with its version, or is empty if the version is 0.
struct Value {
    text: String,
    /// Whether the value is newer than its file, which may not exist yet.
    is_dirty: bool,
}

impl Value {
    /// Returns the version, after checking that the text is whole.
    fn version(&self) -> u64 {
        let version = self.text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        assert!(self.text == text(version), "a torn value: {}", self.text);
        version
    }
}

/// Returns the text of a version. Texts differ in length.
fn text(version: u64) -> String {
    if version == 0 { String::new() } else { vec![version.to_string(); 1 + version as usize % 40].join(" ") }
}

struct Cache {
    values: LockMap<u64, Value>,
    folder: PathBuf,
    journal: Mutex<File>,
}

impl Cache {
    /// Opens the cache in this folder. First it brings the files up to date with the journal, whose entries are newer.
    fn open(folder: &Path) -> io::Result<Self> {
        let journal = folder.join("journal");
        let mut newest = HashMap::new();
        if let Ok(file) = File::open(&journal) {
            let mut lines = BufReader::new(file);
            let mut line = String::new();
            // If the last line is incomplete, its write was not acknowledged.
            while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
                if let Some((key, text)) = line.trim_end_matches('\n').split_once(':') {
                    newest.insert(key.parse().map_err(io::Error::other)?, text.to_string());
                }
                line.clear();
            }
        }
        for (key, text) in newest {
            store(folder, key, &text)?;
        }
        Ok(Cache {
            values: LockMap::builder().max_values(IN_MEMORY).evict_by_hand().build(),
            folder: folder.to_path_buf(),
            journal: Mutex::new(File::create(&journal)?), // it is emptied only now
        })
    }

    /// Returns the version of a key's value; 0 if it was never written.
    fn read(&self, key: u64) -> io::Result<u64> {
        let value = self.values.get_or_try_insert_with_blocking(&key, || self.load(key))?;
        let version = value.value().map_or(0, Value::version);
        drop(value);
        self.make_room()?;
        Ok(version)
    }

    /// Replaces a key's value with that of the next version, and returns this version.
    fn write(&self, key: u64) -> io::Result<u64> {
        let mut entry = self.values.write_blocking(&key);
        let old = if let Some(value) = entry.value() { value.version() } else { self.load(key)?.version() };
        let value = Value { text: text(old + 1), is_dirty: true };
        self.journal.lock().unwrap().write_all(format!("{key}:{}\n", value.text).as_bytes())?;
        entry.insert(value);
        drop(entry);
        self.make_room()?;
        Ok(old + 1)
    }

    /// Evicts values while there are too many in memory.
    fn make_room(&self) -> io::Result<()> {
        while self.values.excess() > 0 {
            // If no value can be evicted, all are in use, and their users call this method when they have finished.
            let Some(mut next) = self.values.try_next_eviction() else { break };
            // Until the guard is dropped, others that ask for the key wait.
            if let Some(Value { text, is_dirty: true }) = next.value() {
                store(&self.folder, *next.key(), text)?; // if this fails, the value stays in memory
                say(format_args!("spilled"));
            }
            next.remove();
        }
        Ok(())
    }

    /// Reads a value from its file. The caller has locked the key.
    fn load(&self, key: u64) -> io::Result<Value> {
        let text = read(&self.folder, key)?;
        if !text.is_empty() {
            say(format_args!("loaded"));
        }
        Ok(Value { text, is_dirty: false })
    }
}

/// Returns the text in a key's file, or an empty text if there is no file.
fn read(folder: &Path, key: u64) -> io::Result<String> {
    match fs::read_to_string(folder.join(key.to_string())) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(text(0)),
        result => result,
    }
}

/// Writes a value to its file, which has either the old or the new value at any moment.
fn store(folder: &Path, key: u64, text: &str) -> io::Result<()> {
    let new = folder.join(format!("{key}.new"));
    fs::write(&new, text)?;
    fs::rename(new, folder.join(key.to_string()))
}

/// Prints a line for the parent. If the parent is gone, this ends the child.
fn say(line: std::fmt::Arguments<'_>) {
    if writeln!(io::stdout(), "{line}").is_err() {
        process::exit(1);
    }
}

/// A small generator of random numbers. The seed must not be 0.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Reads and writes until the parent kills this process, or for [`LIMIT`].
fn child(folder: &Path, seed: u64) -> io::Result<()> {
    // A failed check in any thread ends the process.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        process::exit(101);
    }));
    say(format_args!("opening"));
    let cache = Cache::open(folder)?;
    let acknowledged = [const { AtomicU64::new(0) }; KEYS as usize];
    thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (cache, acknowledged) = (&cache, &acknowledged);
            scope.spawn(move || work(cache, acknowledged, Random(seed * THREADS + thread)).expect("the files work"));
        }
    });
    Ok(())
}

/// Reads and writes random keys. `acknowledged` has the last version of each key whose write was acknowledged.
fn work(cache: &Cache, acknowledged: &[AtomicU64], mut random: Random) -> io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let key = random.below(KEYS);
        let newest = &acknowledged[key as usize];
        if random.below(3) > 0 {
            let before = newest.load(SeqCst);
            let version = cache.read(key)?;
            assert!(version >= before, "a stale read: {version} of key {key}, and {before} was acknowledged");
        } else {
            let version = cache.write(key)?;
            newest.fetch_max(version, SeqCst);
            say(format_args!("{key} {version}"));
        }
    }
    Ok(())
}

/// The parent's view of the children.
#[derive(Default)]
struct Told {
    /// The last version of each key whose write was acknowledged.
    acknowledged: HashMap<u64, u64>,
    writes: u64,
    spilled: u64,
    loaded: u64,
}

impl Told {
    fn hear(&mut self, line: &str) {
        match line.split_once(' ') {
            Some((key, version)) => {
                let [key, version]: [u64; 2] = [key, version].map(|number| number.parse().expect("a number"));
                let newest = self.acknowledged.entry(key).or_insert(0);
                *newest = version.max(*newest);
                self.writes += 1;
            }
            None if line == "spilled" => self.spilled += 1,
            None if line == "loaded" => self.loaded += 1,
            None => assert_eq!(line, "opening"),
        }
    }
}

/// Starts a child, kills it, and reads everything that it has printed.
fn run_and_kill(folder: &Path, seed: u64, told: &mut Told) -> io::Result<()> {
    let mut random = Random(seed);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", &seed.to_string()])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()?;
    // Some children are killed while they recover: a child prints its first line before it recovers.
    let lines_left = if random.below(4) == 0 { 1 } else { 1 + random.below(2000) };
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    for (number, line) in (1..).zip(lines) {
        told.hear(&line?);
        if number == lines_left {
            child.kill()?; // as kill -9 does
        }
    }
    let status = child.wait()?;
    let is_killed = if cfg!(unix) { status.code().is_none() } else { status.code() == Some(1) };
    assert!(is_killed, "the child ended by itself: {status}");
    Ok(())
}

fn parent() -> io::Result<()> {
    let folder = std::env::temp_dir().join(format!("keylatch-spill-{}", process::id()));
    fs::create_dir_all(&folder)?;
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("it takes too long");
        process::exit(1);
    });
    let (mut told, mut checked) = (Told::default(), 0);
    for seed in 1..=KILLS {
        run_and_kill(&folder, seed, &mut told)?;
        // In these runs the files are not checked, and the next child finds the journal.
        if seed % 3 != 0 && seed != KILLS {
            continue;
        }
        drop(Cache::open(&folder)?);
        for (&key, &acknowledged) in &told.acknowledged {
            let found = Value { text: read(&folder, key)?, is_dirty: false }.version();
            assert!(found >= acknowledged, "a lost write: key {key} has {found}, and {acknowledged} was acknowledged");
            // Since the last check up to three children were killed, each of their threads perhaps between the journal
            // and the acknowledgement.
            let most = acknowledged + 3 * THREADS;
            assert!(found <= most, "key {key} has {found}, and only {acknowledged} was acknowledged");
            checked += 1;
        }
    }
    fs::remove_dir_all(&folder)?;
    let Told { writes, spilled, loaded, .. } = told;
    println!("children killed                     {KILLS:>7}");
    println!("writes acknowledged                 {writes:>7}");
    println!("values written to files, and removed{spilled:>7}");
    println!("values read from files              {loaded:>7}");
    println!("values checked by the parent        {checked:>7}");
    println!("lost, stale or torn                       0  must be 0");
    assert!(writes > 0 && spilled > 0 && loaded > 0, "nothing was tested");
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => parent(),
        [flag, seed, folder] if flag == "--child" => child(Path::new(folder), seed.parse().map_err(io::Error::other)?),
        _ => Err(io::Error::other("usage: spill")),
    }
}
