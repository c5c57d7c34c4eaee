//! An image cache like that of a web service: clients request photographs in some width and format. A variant that is
//! not yet in the cache folder is decoded, resized, encoded and written there by one request, while the others wait
//! for it.
//!
//! ```text
//! cargo run --release --example thumbnails                   # a lock per file: each is rendered once, in parallel
//! cargo run --release --example thumbnails -- --lock global  # equally correct, but one file after another
//! cargo run --release --example thumbnails -- --lock none    # renders the same file repeatedly, with torn reads
//! ```
//!
//! Where to look: [`Cache::serve`] answers a request; [`Cache::lock`] waits for the lock, with a limit; [`Job`] moves
//! the lock to a blocking thread; [`Cache::warm_up`] is a thread that uses the same locks without async code.

use std::collections::HashSet;
use std::convert::Infallible;
use std::f64::consts::LN_2;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use image::codecs::{jpeg::JpegEncoder, png::PngEncoder, webp::WebPEncoder};
use image::{DynamicImage, ImageFormat, ImageResult, imageops::FilterType};
use indicatif::{ProgressBar, ProgressStyle};
use keylatch::{KeyedMutex, MutexGuardArc};
use smol::{Executor, Timer, future};

const HELP: &str = "\
A cache of resized photographs under load, with a lock per file, one lock for all files, or none.

Usage: thumbnails [OPTIONS]

  --photos DIR    PNG, JPEG or WebP photographs (default: those in examples/photos)
  --out DIR       the cache folder: created if missing; must be empty; is kept
                  (default: a temporary folder, removed at the end)
  --requests N    number of requests in total (default: 5000)
  --clients N     number of clients, each of which sends one request at a time (default: 200)
  --seed N        seed of the random requests (default: 1)
  --lock MODE     none, global or keyed (default: keyed)
  --help          this text

Exit code: 0 on success; 1 if a count is wrong, except with --lock none; 2 if an argument is invalid.";

/// The available formats: file extension and encoder.
const FORMATS: [(&str, Encode); 3] = [
    ("jpg", |image, file| image.write_with_encoder(JpegEncoder::new(file))),
    ("png", |image, file| image.write_with_encoder(PngEncoder::new(file))),
    ("webp", |image, file| image.write_with_encoder(WebPEncoder::new_lossless(file))),
];

type Encode = fn(&DynamicImage, &mut Checksummed) -> ImageResult<()>;

/// How many of the most popular variants are rendered in advance.
const WARM_UP: usize = 24;

/// The share of requests with a time limit for the lock, and the share that is cancelled if the answer takes too
/// long.
const IMPATIENT: f64 = 0.20;
const CANCELLED: f64 = 0.05;
const LONGEST_LIMIT: Duration = Duration::from_millis(20);

// --- The cache -------------------------------------------------------------------------------------------------------

/// A picture in one width and format: one file of the cache.
struct Variant {
    photo: PathBuf,
    width: u32,
    encode: Encode,
    path: PathBuf,
    /// Named after the variant alone, so that leftovers of a crash do not pile up but are overwritten by the next
    /// attempt. This is sound only if a variant is never rendered twice at the same time.
    temporary: PathBuf,
}

impl Variant {
    fn new(dir: &Path, photo: &Path, width: u32, (extension, encode): (&str, Encode)) -> Self {
        // The photograph keeps its extension: `cat.png` and `cat.jpg` may be different cats.
        let mut name = photo.file_name().expect("a photograph is a file").to_os_string();
        name.push(format!(".{width}.{extension}"));
        let path = dir.join(&name);
        name.push(".tmp");
        Variant { photo: photo.to_owned(), width, encode, path, temporary: dir.join(name) }
    }

    fn render(&self) -> io::Result<()> {
        let photo = image::open(&self.photo).map_err(io::Error::other)?;
        let resized = photo.resize(self.width, u32::MAX, FilterType::Lanczos3);
        let mut file = Checksummed::create(&self.temporary)?;
        (self.encode)(&resized, &mut file).map_err(io::Error::other)?;
        file.finish()?;
        // Readers take no lock, so a file must be complete from the moment it has its final name.
        fs::rename(&self.temporary, &self.path)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Locking {
    None,
    Global,
    Keyed,
}

struct Cache {
    dir: PathBuf,
    /// Most popular first.
    variants: Vec<Variant>,
    locking: Locking,
    locks: Arc<KeyedMutex<PathBuf>>,
    events: mpsc::Sender<Event>,
}

impl Cache {
    /// Returns the key to lock for a variant, or `None` if nothing is locked.
    fn key(&self, variant: usize) -> Option<&Path> {
        match self.locking {
            Locking::None => None,
            Locking::Global => Some(&self.dir),
            Locking::Keyed => Some(&self.variants[variant].path),
        }
    }

    async fn serve(self: &Arc<Self>, request: &Request) -> io::Result<Vec<u8>> {
        let path = &self.variants[request.variant].path;
        match smol::fs::read(path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            answer => return answer,
        }
        let guard = self.lock(request).await?;
        // Checks again: the previous holder of the lock has most likely written the file. This is a single system
        // call, faster than moving it to another thread, which would delay all waiters of this lock.
        if path.exists() {
            drop(guard);
            return smol::fs::read(path).await;
        }
        // If this request is cancelled while it waits here, a job that has not started is dropped with its guard, and
        // the next request can lock the key. A job that has started finishes, and keeps the key until then.
        let job = Job { _guard: guard, cache: Arc::clone(self), variant: request.variant };
        smol::unblock(|| job.run()).await
    }

    async fn lock(&self, request: &Request) -> io::Result<Option<MutexGuardArc<PathBuf>>> {
        let Some(key) = self.key(request.variant) else { return Ok(None) };
        let asked = Instant::now();
        let locked = self.locks.lock_arc(key).until(timer(request.patience)).await;
        let guard = locked.map_err(|_| ErrorKind::TimedOut)?;
        self.tell(Event::Locked(asked.elapsed()));
        Ok(Some(guard))
    }

    /// Renders a variant whose file is missing. Blocks. The caller holds the lock, if there is one.
    fn render(&self, variant: usize) -> io::Result<()> {
        self.tell(Event::Begun(variant));
        self.variants[variant].render()
    }

    /// Renders the most popular variants in advance, in a plain thread that competes with the requests for their
    /// locks.
    fn warm_up(&self) {
        for (variant, file) in self.variants.iter().enumerate().take(WARM_UP) {
            let _guard = self.key(variant).map(|key| self.locks.lock_blocking(key));
            if !file.path.exists() {
                // No request waits for this result. The first request for the variant will meet the same error and
                // report it.
                _ = self.render(variant);
            }
        }
    }

    fn tell(&self, event: Event) {
        self.events.send(event).expect("events are received as long as there is a sender");
    }
}

/// A render on its way to a blocking thread. It owns the guard: an owned guard is bound neither to a thread nor to
/// the request that acquired it.
///
/// Fields are dropped in order: when the cache is dropped, and the sender of events with it, the key is already free.
struct Job {
    _guard: Option<MutexGuardArc<PathBuf>>,
    cache: Arc<Cache>,
    variant: usize,
}

impl Job {
    fn run(self) -> io::Result<Vec<u8>> {
        self.cache.render(self.variant)?;
        fs::read(&self.cache.variants[self.variant].path)
    }
}

/// A file that ends with a checksum, by which a reader recognises a complete file. Image decoders ignore data after
/// the image, so the file can be served as it is.
struct Checksummed {
    file: BufWriter<File>,
    sum: u64,
}

impl Checksummed {
    fn create(path: &Path) -> io::Result<Self> {
        Ok(Checksummed { file: BufWriter::new(File::create(path)?), sum: FNV_BASIS })
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.write_all(&self.sum.to_le_bytes())?;
        // Written to the disk, because otherwise a power failure after the rename could leave an empty file under the
        // final name.
        self.file.into_inner()?.sync_all()
    }
}

impl Write for Checksummed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum = fnv1a(self.sum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn is_whole(file: &[u8]) -> bool {
    file.split_last_chunk().is_some_and(|(image, sum)| fnv1a(FNV_BASIS, image) == u64::from_le_bytes(*sum))
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

// --- The clients -----------------------------------------------------------------------------------------------------

struct Request {
    variant: usize,
    /// The time limit for the lock.
    patience: Option<Duration>,
    /// The time after which it is cancelled.
    cancelled: Option<Duration>,
}

/// Returns a timer that never fires if there is no limit.
fn timer(limit: Option<Duration>) -> Timer {
    limit.map_or_else(Timer::never, Timer::after)
}

/// Sends requests one after another. The requests depend only on the random numbers, their outcomes also on timing.
async fn client(cache: Arc<Cache>, mut random: Random, requests: usize) {
    for _ in 0..requests {
        let request = Request {
            variant: random.zipf(cache.variants.len()),
            patience: random.limit(IMPATIENT),
            cancelled: random.limit(CANCELLED),
        };
        let answer = async {
            match cache.serve(&request).await {
                Ok(file) if is_whole(&file) => Event::Served,
                Ok(_) => Event::Torn,
                Err(error) if error.kind() == ErrorKind::TimedOut => Event::TimedOut,
                Err(error) => Event::Failed(error),
            }
        };
        let hang_up = async {
            timer(request.cancelled).await;
            Event::Cancelled
        };
        // The slower of the two futures is dropped, whatever it is doing.
        cache.tell(future::or(answer, hang_up).await);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a rank below `ranks` by Zipf's law: the first is drawn twice as often as the second, three times as
    /// often as the third, and so on.
    fn zipf(&mut self, ranks: usize) -> usize {
        loop {
            // A power with a random exponent falls between `n` and `n + 1` in proportion to `ln(1 + 1 / n)`, which is
            // nearly `1 / n`; the excess is rejected.
            let n = ((ranks + 1) as f64).powf(self.unit()).floor();
            if self.unit() * n * (1.0 / n).ln_1p() < LN_2 {
                return (n as usize).min(ranks) - 1;
            }
        }
    }

    /// Returns a time limit for this share of the requests.
    fn limit(&mut self, share: f64) -> Option<Duration> {
        (self.unit() < share).then(|| LONGEST_LIMIT.mul_f64(self.unit()))
    }
}

// --- The run ---------------------------------------------------------------------------------------------------------

fn main() -> ExitCode {
    start().unwrap_or_else(|complaint| {
        eprintln!("thumbnails: {complaint} (see --help)");
        ExitCode::from(2)
    })
}

/// Runs the program. `Err` describes a mistake in the arguments.
fn start() -> Result<ExitCode, String> {
    let Some(args) = Args::parse(env::args_os().skip(1))? else {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let photos = usable_photos(&args.photos)?;
    let temporary = || env::temp_dir().join(format!("keylatch-thumbnails-{}", process::id()));
    let dir = args.out.clone().unwrap_or_else(temporary);
    empty_folder(&dir)?;

    let is_sound = run(&args, &photos, &dir);

    if args.out.is_none() {
        if let Err(error) = fs::remove_dir_all(&dir) {
            eprintln!("{}: cannot be removed: {error}", dir.display());
        }
    }
    Ok(if is_sound || args.locking == Locking::None { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lets the clients use an empty cache, and [reports](Tally::report) the results. Returns whether all counts are
/// right.
fn run(args: &Args, photos: &[PathBuf], dir: &Path) -> bool {
    let mut random = Random(args.seed);
    let mut variants = vec![];
    for photo in photos {
        for width in (16..=512).step_by(16) {
            variants.extend(FORMATS.map(|format| Variant::new(dir, photo, width, format)));
        }
    }
    // The seed determines which variants are popular.
    variants.sort_by_cached_key(|_| random.next());

    let locks = Arc::new(KeyedMutex::new());
    let (events, received) = mpsc::channel();
    let cache =
        Arc::new(Cache { dir: dir.to_owned(), variants, locking: args.locking, locks: Arc::clone(&locks), events });

    let executor = Executor::new();
    let requests = args.requests.get();
    let clients = args.clients.get().min(requests);
    for i in 0..clients {
        let share = requests / clients + usize::from(i < requests % clients);
        executor.spawn(client(Arc::clone(&cache), Random(random.next()), share)).detach();
    }

    let begin = Instant::now();
    let mut tally = Tally::default();
    let (running, stopped) = smol::channel::bounded::<Infallible>(1);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, |cores| cores.get().max(2)) {
            scope.spawn(|| smol::block_on(executor.run(stopped.recv())));
        }
        scope.spawn(move || cache.warm_up());
        // The cache, and the sender of events with it, now belongs only to the clients, the jobs and the thread
        // above. The events end when the last of them is dropped: when every render has finished, even if its request
        // was cancelled.
        tally.count(received, requests);
        drop(running);
    });
    tally.report(args, begin.elapsed(), locks.len())
}

/// A message to the main thread.
enum Event {
    /// A render of the variant with this index has started.
    Begun(usize),
    /// A request has acquired its lock, after this time.
    Locked(Duration),
    // The outcomes of a request.
    Served,
    Torn,
    TimedOut,
    Cancelled,
    Failed(io::Error),
}

#[derive(Default)]
struct Tally {
    served: usize,
    torn: usize,
    timed_out: usize,
    cancelled: usize,
    failed: usize,
    first_failure: Option<io::Error>,
    begun: HashSet<usize>,
    renders: usize,
    waits: Vec<Duration>,
}

impl Tally {
    fn count(&mut self, events: mpsc::Receiver<Event>, requests: usize) {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} requests, {msg} renders").expect("is valid");
        let bar = ProgressBar::new(requests as u64).with_style(style).with_message("0");
        for event in events {
            match event {
                Event::Begun(variant) => {
                    self.begun.insert(variant);
                    self.renders += 1;
                    bar.set_message(self.renders.to_string());
                }
                Event::Locked(wait) => self.waits.push(wait),
                Event::Served => self.served += 1,
                Event::Torn => self.torn += 1,
                Event::TimedOut => self.timed_out += 1,
                Event::Cancelled => self.cancelled += 1,
                Event::Failed(error) => {
                    self.failed += 1;
                    self.first_failure.get_or_insert(error);
                }
            }
            bar.set_position(self.ended() as u64);
        }
        bar.finish_and_clear();
        self.waits.sort_unstable();
    }

    /// Returns the number of requests that have ended.
    fn ended(&self) -> usize {
        self.served + self.torn + self.timed_out + self.cancelled + self.failed
    }

    /// Prints the table. Returns whether every count is right.
    fn report(&self, args: &Args, wall: Duration, entries: usize) -> bool {
        let distinct = self.begun.len();
        let counts = [
            ("requests", self.ended(), Some(args.requests.get())),
            ("served", self.served, None),
            ("timed out", self.timed_out, None),
            ("cancelled", self.cancelled, None),
            ("failed", self.failed, Some(0)),
            ("torn reads", self.torn, Some(0)),
            ("distinct variants begun", distinct, None),
            ("renders", self.renders, Some(distinct)),
            ("entries left in lock table", entries, Some(0)),
        ];
        // Only for requests that had to lock and succeeded: those that find their file do not wait.
        let times = [
            ("p50 wait for the lock", self.wait(50)),
            ("p99 wait for the lock", self.wait(99)),
            ("wall time", Some(wall)),
        ];

        println!("{:<28}{:>10}", "lock", format!("{:?}", args.locking).to_lowercase());
        for (label, count, must) in counts {
            let verdict = must.map_or(String::new(), |must| {
                format!("  must be {must}{}", if count == must { "" } else { ": FAILED" })
            });
            println!("{label:<28}{count:>10}{verdict}");
        }
        for (label, time) in times {
            println!("{label:<28}{:>10}", time.map_or("-".to_owned(), |time| format!("{time:.1?}")));
        }
        if let Some(error) = &self.first_failure {
            println!("{:<28}{error}", "first failure");
        }
        counts.iter().all(|&(_, count, must)| must.is_none_or(|must| count == must))
    }

    fn wait(&self, percentile: usize) -> Option<Duration> {
        let rank = (self.waits.len() * percentile).div_ceil(100);
        Some(self.waits[rank.checked_sub(1)?])
    }
}

// --- The arguments ---------------------------------------------------------------------------------------------------

struct Args {
    photos: PathBuf,
    out: Option<PathBuf>,
    requests: NonZeroUsize,
    clients: NonZeroUsize,
    seed: u64,
    locking: Locking,
}

impl Args {
    /// Returns `None` if help is requested.
    fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut parsed = Args {
            photos: Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/photos"),
            out: None,
            requests: const { NonZeroUsize::new(5000).unwrap() },
            clients: const { NonZeroUsize::new(200).unwrap() },
            seed: 1,
            locking: Locking::Keyed,
        };
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy();
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match &*flag {
                "--photos" => parsed.photos = value()?.into(),
                "--out" => parsed.out = Some(value()?.into()),
                "--requests" => parsed.requests = parse(&flag, &value()?, "a whole number above 0")?,
                "--clients" => parsed.clients = parse(&flag, &value()?, "a whole number above 0")?,
                "--seed" => parsed.seed = parse(&flag, &value()?, "a whole number below 2^64")?,
                "--lock" => parsed.locking = parse(&flag, &value()?, "none, global or keyed")?,
                "--help" => return Ok(None),
                _ => return Err(format!("{flag}: unknown option")),
            }
        }
        Ok(Some(parsed))
    }
}

fn parse<T: FromStr>(flag: &str, value: &OsStr, what: &str) -> Result<T, String> {
    let value = value.to_string_lossy();
    value.parse().map_err(|_| format!("{flag} {value}: must be {what}"))
}

impl FromStr for Locking {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "none" => Ok(Locking::None),
            "global" => Ok(Locking::Global),
            "keyed" => Ok(Locking::Keyed),
            _ => Err(()),
        }
    }
}

/// Returns the photographs in a folder, which may contain other files. Broken ones are reported and skipped.
fn usable_photos(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let complain = |error: io::Error| format!("--photos {}: {error}", dir.display());
    let entries = fs::read_dir(dir).map_err(complain)?;
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut photos = paths.map_err(complain)?;
    // A folder has no order of its own, and the same seed must lead to the same requests.
    photos.sort();
    photos.retain(|path| ImageFormat::from_path(path).is_ok_and(|format| format.reading_enabled()));
    photos.retain(|path| {
        image::open(path).inspect_err(|error| eprintln!("{}: skipped: {error}", path.display())).is_ok()
    });
    if photos.is_empty() {
        return Err(format!("--photos {}: contains no usable photograph", dir.display()));
    }
    Ok(photos)
}

/// Creates the cache folder, or checks that it is empty: files of an earlier run would not be rendered again, and the
/// counts would be meaningless.
fn empty_folder(dir: &Path) -> Result<(), String> {
    let complain = |error: io::Error| format!("--out {}: {error}", dir.display());
    fs::create_dir_all(dir).map_err(complain)?;
    match fs::read_dir(dir).map_err(complain)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("--out {}: must be empty", dir.display())),
    }
}
