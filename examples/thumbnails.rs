//! An image cache as a web service has it: clients ask for photographs in some width and format. A variant that is not
//! in the cache folder yet is decoded, resized, encoded and written there by one request; the others wait for that.
//!
//! ```text
//! cargo run --release --example thumbnails                   # a lock per file: each rendered once, others meanwhile
//! cargo run --release --example thumbnails -- --lock global  # as correct, but one file after another
//! cargo run --release --example thumbnails -- --lock none    # the same file rendered again and again, torn reads
//! ```
//!
//! What to look at: [`Cache::serve`] answers a request; [`Cache::lock`] waits for the lock, with a limit; [`Job`] takes
//! the lock along to a blocking thread; [`Cache::warm_up`] is a thread that takes the same locks without any async.

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

  --photos DIR    the photographs, PNG, JPEG or WebP (default: those in examples/photos)
  --out DIR       the cache folder: made if absent, must be empty, and is kept
                  (default: a temporary folder, which is removed at the end)
  --requests N    how many requests there are in all (default: 5000)
  --clients N     how many clients send them, each one after another (default: 200)
  --seed N        the same seed, the same requests (default: 1)
  --lock MODE     none, global or keyed (default: keyed)
  --help          this text

Exit code: 0; 1 if a number is not what it must be, except with --lock none; 2 if an argument is no good.";

/// The formats that can be asked for: file extension and encoder.
const FORMATS: [(&str, Encode); 3] = [
    ("jpg", |image, file| image.write_with_encoder(JpegEncoder::new(file))),
    ("png", |image, file| image.write_with_encoder(PngEncoder::new(file))),
    ("webp", |image, file| image.write_with_encoder(WebPEncoder::new_lossless(file))),
];

type Encode = fn(&DynamicImage, &mut Checksummed) -> ImageResult<()>;

/// How many of the most popular variants are made in advance.
const WARM_UP: usize = 24;

/// Which share of the requests waits only so long for the lock, and which is cancelled if its answer takes too long.
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
    /// Named after the variant alone, so that what a crash leaves behind does not pile up but is overwritten by the
    /// next attempt. That is sound only if no variant is rendered twice at the same time.
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
        // Reading takes no lock, so what is there under the final name has to be whole from the first moment.
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
    /// The most popular first.
    variants: Vec<Variant>,
    locking: Locking,
    locks: Arc<KeyedMutex<PathBuf>>,
    events: mpsc::Sender<Event>,
}

impl Cache {
    /// What has to be locked for a variant.
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
        // Looks again: whoever had the lock before has most likely made the file. This is one system call, and shorter
        // than asking another thread to do it, for which all others in the queue for this lock would have to wait.
        if path.exists() {
            drop(guard);
            return smol::fs::read(path).await;
        }
        // If this request is cancelled while it waits here, a job that has not begun is dropped, and its guard with it:
        // the next request can have the key. A job that has begun finishes, and keeps the key until then.
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

    /// Blocks. To be called with the lock of the variant, whose file is missing.
    fn render(&self, variant: usize) -> io::Result<()> {
        self.tell(Event::Begun(variant));
        self.variants[variant].render()
    }

    /// Makes the most popular variants in advance: a plain thread that competes with the requests for their locks.
    fn warm_up(&self) {
        for (variant, file) in self.variants.iter().enumerate().take(WARM_UP) {
            let _guard = self.key(variant).map(|key| self.locks.lock_blocking(key));
            if !file.path.exists() {
                // Nobody waits for this one. The first request for it will meet the same error, and report it.
                _ = self.render(variant);
            }
        }
    }

    fn tell(&self, event: Event) {
        self.events.send(event).expect("events are received as long as there is a sender");
    }
}

/// A render on its way to a blocking thread. The guard goes with it: an owned guard is tied neither to a thread nor to
/// the request that got it.
///
/// Fields are dropped in order: when the cache goes, and with it the sender of events, the key is free already.
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

/// A file with a checksum at its end, by which a reader knows that it is whole. Image decoders ignore what follows the
/// image, so the file can be served as it is.
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
        // To the disk, or a power failure after the rename may leave an empty file under the final name.
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
    /// How long it waits for the lock.
    patience: Option<Duration>,
    /// After what time it is cancelled.
    cancelled: Option<Duration>,
}

/// Never fires if there is no limit.
fn timer(limit: Option<Duration>) -> Timer {
    limit.map_or_else(Timer::never, Timer::after)
}

/// Sends requests one after another. What they are depends on the random numbers alone; how they end, on time as well.
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
        // The one that is later is dropped, wherever it is.
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

    /// From 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A rank below `ranks` by Zipf's law: the first is drawn twice as often as the second, three times as often as the
    /// third, and so on.
    fn zipf(&mut self, ranks: usize) -> usize {
        loop {
            // A power with a random exponent is between `n` and `n + 1` in proportion to `ln(1 + 1 / n)`: nearly
            // `1 / n`, and the excess is rejected.
            let n = ((ranks + 1) as f64).powf(self.unit()).floor();
            if self.unit() * n * (1.0 / n).ln_1p() < LN_2 {
                return (n as usize).min(ranks) - 1;
            }
        }
    }

    /// A time limit for this share of the requests.
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

/// `Err` is a complaint about the arguments.
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
            eprintln!("{}: not removed: {error}", dir.display());
        }
    }
    Ok(if is_sound || args.locking == Locking::None { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lets the clients loose on an empty cache, and [reports](Tally::report) what comes of it.
fn run(args: &Args, photos: &[PathBuf], dir: &Path) -> bool {
    let mut random = Random(args.seed);
    let mut variants = vec![];
    for photo in photos {
        for width in (16..=512).step_by(16) {
            variants.extend(FORMATS.map(|format| Variant::new(dir, photo, width, format)));
        }
    }
    // Which variants are popular is for the seed to say.
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
        // The cache, and with it the sender of events, now belongs to the clients, the jobs and the thread above alone.
        // The events end with the last of them: when every render has finished, even if its request was cancelled.
        tally.count(received, requests);
        drop(running);
    });
    tally.report(args, begin.elapsed(), locks.len())
}

/// What the main thread is told.
enum Event {
    /// Somebody begins to render the variant of this index.
    Begun(usize),
    /// A request has got its lock, after this time.
    Locked(Duration),
    // How a request has ended: as one of these.
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

    /// How many requests have ended.
    fn ended(&self) -> usize {
        self.served + self.torn + self.timed_out + self.cancelled + self.failed
    }

    /// Prints the table. Whether every number is what it must be.
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
        // Of the requests that had to take the lock and got it: those that find their file do not wait.
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
    /// `None` if help is asked for.
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
                _ => return Err(format!("{flag}: no such option")),
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

/// The photographs in a folder, which may hold other files too. Broken ones are reported and skipped.
fn usable_photos(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let complain = |error: io::Error| format!("--photos {}: {error}", dir.display());
    let entries = fs::read_dir(dir).map_err(complain)?;
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut photos = paths.map_err(complain)?;
    // The folder's own order is no order, and a seed has to mean the same requests every time.
    photos.sort();
    photos.retain(|path| ImageFormat::from_path(path).is_ok_and(|format| format.reading_enabled()));
    photos.retain(|path| {
        image::open(path).inspect_err(|error| eprintln!("{}: skipped: {error}", path.display())).is_ok()
    });
    if photos.is_empty() {
        return Err(format!("--photos {}: has no usable photograph", dir.display()));
    }
    Ok(photos)
}

/// Makes the cache folder, or sees that it is empty: what an earlier run has made would not be rendered again, and the
/// counts would mean nothing.
fn empty_folder(dir: &Path) -> Result<(), String> {
    let complain = |error: io::Error| format!("--out {}: {error}", dir.display());
    fs::create_dir_all(dir).map_err(complain)?;
    match fs::read_dir(dir).map_err(complain)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("--out {}: is not empty", dir.display())),
    }
}
