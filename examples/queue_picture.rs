//! Draws which task holds a key at which time, under each policy, and under one with a priority: the picture in
//! `docs/guide.md`.
//!
//! ```text
//! cargo run --example queue_picture > docs/charts/queue.svg
//! ```
//!
//! Under each policy the same tasks lock one key of a real table, and every event is recorded and drawn. There are no
//! threads and no clock, so every run is the same. Time is counted in steps. In each step
//! 1. the holders whose time is up release the key;
//! 2. the tasks that were woken in an *earlier* step are polled, because a woken task does not run at once;
//! 3. the tasks that want the key and have not requested it yet make their request.

use std::any::Any;
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use keylatch::{Fairness, KeyedRwLock};

/// A task: it requests the key at step `asks_at`, holds it for `holds_for` steps, and requests it again at once, until
/// it has held the key `rounds` times.
struct Task {
    name: &'static str,
    writes: bool,
    asks_at: usize,
    holds_for: usize,
    rounds: usize,
}

const TASKS: [Task; 5] = [
    Task { name: "loop", writes: true, asks_at: 0, holds_for: 2, rounds: 8 },
    Task { name: "writer 1", writes: true, asks_at: 1, holds_for: 3, rounds: 1 },
    Task { name: "writer 2", writes: true, asks_at: 12, holds_for: 3, rounds: 1 },
    Task { name: "reader 1", writes: false, asks_at: 13, holds_for: 2, rounds: 1 },
    Task { name: "reader 2", writes: false, asks_at: 13, holds_for: 2, rounds: 1 },
];

/// The policies, each with the priority of the task [`FAVOURED`]; the other tasks have none.
const POLICIES: [(&str, Fairness, u8); 5] = [
    ("Adaptive, the default", Fairness::Adaptive, 0),
    ("Bounded(2)", Fairness::Bounded(2), 0),
    ("Fifo", Fairness::Fifo, 0),
    ("Barging", Fairness::Barging, 0),
    ("Adaptive, writer 2 with a priority", Fairness::Adaptive, 1),
];

/// The index of "writer 2".
const FAVOURED: usize = 2;

const KEY: u64 = 7;

/// A task's activity from one step to another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Wait,
    /// It was woken and polled, and found the key taken again.
    FindTaken,
    /// It was handed the key, and has not been polled since.
    Approach,
    Hold,
}

#[derive(Default)]
struct Seen {
    does: Vec<(Does, usize, usize)>,
    rounds: usize,
    /// The number of later requests that got the key before it.
    passed_by: usize,
}

type Request = Pin<Box<dyn Future<Output = Box<dyn Any>>>>;

enum State {
    Away { asks_at: usize },
    Waits { request: Request, arrival: usize, since: usize, woken: bool, handed_over: Option<usize> },
    Holds { _guard: Box<dyn Any>, since: usize },
    Done,
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

struct Scene {
    table: Arc<KeyedRwLock<u64>>,
    /// The priority of the task [`FAVOURED`].
    priority: u8,
    states: [State; TASKS.len()],
    bells: [Arc<Bell>; TASKS.len()],
    seen: [Seen; TASKS.len()],
    arrivals: usize,
    step: usize,
    /// The number of steps in which the key was not held.
    idle: usize,
}

fn watch(fairness: Fairness, priority: u8) -> Scene {
    let table = Arc::new(KeyedRwLock::builder().fairness(fairness).build());
    let states = TASKS.each_ref().map(|task| State::Away { asks_at: task.asks_at });
    let (bells, seen) = Default::default();
    let mut scene = Scene { table, priority, states, bells, seen, arrivals: 0, step: 0, idle: 0 };
    while !scene.states.iter().all(|state| matches!(state, State::Done)) {
        for who in 0..TASKS.len() {
            if matches!(scene.states[who], State::Waits { woken: true, .. }) {
                scene.poll(who);
            }
        }
        (0..TASKS.len()).for_each(|who| scene.ask(who));
        scene.note_woken_tasks();
        scene.step += 1;
        (0..TASKS.len()).for_each(|who| scene.leave(who));
    }
    scene
}

impl Scene {
    fn leave(&mut self, who: usize) {
        let State::Holds { since, .. } = self.states[who] else { return };
        let (seen, task, asks_at) = (&mut self.seen[who], &TASKS[who], self.step);
        if since + task.holds_for == self.step {
            seen.does.push((Does::Hold, since, self.step));
            seen.rounds += 1;
            // This drops the guard.
            self.states[who] = if seen.rounds < task.rounds { State::Away { asks_at } } else { State::Done };
        }
    }

    fn ask(&mut self, who: usize) {
        if matches!(self.states[who], State::Away { asks_at } if asks_at == self.step) {
            let (table, writes) = (self.table.clone(), TASKS[who].writes);
            let priority = if who == FAVOURED { self.priority } else { 0 };
            let request = Box::pin(async move {
                let guard: Box<dyn Any> = if writes {
                    Box::new(table.write_arc(&KEY).priority(priority).await)
                } else {
                    Box::new(table.read_arc(&KEY).priority(priority).await)
                };
                guard
            });
            let (arrival, since) = (self.arrivals, self.step);
            self.arrivals += 1;
            self.states[who] = State::Waits { request, arrival, since, woken: false, handed_over: None };
            self.poll(who);
        }
    }

    fn poll(&mut self, who: usize) {
        let State::Waits { request, arrival, since, woken, handed_over } = &mut self.states[who] else { return };
        let (step, does, waker) = (self.step, &mut self.seen[who].does, Waker::from(self.bells[who].clone()));
        let Poll::Ready(guard) = request.as_mut().poll(&mut Context::from_waker(&waker)) else {
            assert!(handed_over.is_none(), "a key that was handed over must be there");
            does.extend(std::mem::take(woken).then_some((Does::FindTaken, step, step)));
            return;
        };
        let (arrival, handed_over) = (*arrival, handed_over.unwrap_or(step));
        let spans = [(Does::Wait, *since, handed_over), (Does::Approach, handed_over, step)];
        does.extend(spans.iter().filter(|(_, from, to)| from < to));
        self.states[who] = State::Holds { _guard: guard, since: step };
        for (state, seen) in self.states.iter().zip(&mut self.seen) {
            seen.passed_by += usize::from(matches!(state, State::Waits { arrival: earlier, .. } if *earlier < arrival));
        }
    }

    /// Records which tasks were woken in this step. If the table has more holders than there are guards, these tasks
    /// have been handed the key.
    fn note_woken_tasks(&mut self) {
        let guards = self.states.iter().filter(|state| matches!(state, State::Holds { .. })).count();
        let more = self.table.status(&KEY).is_some_and(|status| status.holders() > guards);
        for (state, bell) in self.states.iter_mut().zip(&self.bells) {
            if let (State::Waits { woken, handed_over, .. }, true) = (state, bell.0.swap(false, SeqCst)) {
                (*woken, *handed_over) = (true, more.then_some(self.step));
            }
        }
        self.idle += usize::from(guards == 0);
    }
}

const TITLE: &str = "The same requests for one key, under four policies";
const LEFT: usize = 92;
const LANE: usize = 17;
// Visible on a white page and on a black one.
const WRITER: &str = "#e8833a";
const READER: &str = "#5b8dd0";
const GREY: &str = "#9aa3ad";
const END: &str = r#"text-anchor="end""#;

pub(crate) fn svg() -> String {
    let scenes = POLICIES.map(|(_, fairness, priority)| watch(fairness, priority));
    let steps = scenes.iter().map(|scene| scene.step).max().unwrap_or(0);
    let mut body = format!("<title>{TITLE}</title>\n");
    text(&mut body, 16, 26, r#"font-size="16" font-weight="bold""#, TITLE);
    for (x, colour, does, means) in [
        (16, WRITER, Does::Hold, "writes"),
        (98, READER, Does::Hold, "reads"),
        (176, GREY, Does::Wait, "waits"),
        (254, GREY, Does::FindTaken, "was woken, ran, and found the key taken"),
        (564, WRITER, Does::Approach, "was handed the key, has not run yet"),
    ] {
        mark(&mut body, does, x, x + 20, 38, colour);
        text(&mut body, x + 26, 50, "", means);
    }
    let mut y = 66;
    for ((name, ..), Scene { seen, step: end, idle, .. }) in POLICIES.iter().zip(&scenes) {
        let note = format!("done after {end} steps; in {idle} of them nobody holds the key");
        text(&mut body, 16, y + 18, r#"font-weight="bold""#, name);
        text(&mut body, x(steps), y + 18, END, &note);
        y += 26;
        for step in (0..=steps).step_by(5) {
            let (x, height) = (x(step), LANE * TASKS.len());
            let _ = writeln!(body, r#"<path d="M{x} {y}v{height}" stroke="{GREY}" stroke-opacity="0.35"/>"#);
        }
        for (task, seen) in TASKS.iter().zip(seen) {
            text(&mut body, LEFT - 8, y + 12, END, task.name);
            let colour = if task.writes { WRITER } else { READER };
            seen.does.iter().for_each(|&(does, from, to)| mark(&mut body, does, x(from), x(to), y, colour));
            if let (Some(&(.., to)), 1..) = (seen.does.last(), seen.passed_by) {
                text(&mut body, x(to) + 6, y + 12, r#"font-size="11""#, &format!("passed by {}", seen.passed_by));
            }
            y += LANE;
        }
    }
    let (middle, height) = (r#"text-anchor="middle""#, y + 30);
    text(&mut body, LEFT - 8, y + 16, END, "step");
    (0..=steps).step_by(5).for_each(|step| text(&mut body, x(step), y + 16, middle, &step.to_string()));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" width=\"860\" height=\"{height}\" role=\"img\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\" fill=\"#77818c\">\n{body}</svg>\n"
    )
}

fn x(step: usize) -> usize {
    LEFT + step * 22
}

fn mark(body: &mut String, does: Does, from: usize, to: usize, y: usize, colour: &str) {
    let (top, height, style) = match does {
        Does::Wait => (7, 3, format!(r#"fill="{GREY}""#)),
        Does::FindTaken => (3, 11, format!(r#"fill="{GREY}""#)),
        Does::Approach => (3, 11, format!(r#"fill="none" stroke="{colour}" stroke-width="2""#)),
        Does::Hold => (2, 13, format!(r#"fill="{colour}""#)),
    };
    let (x, width) = if does == Does::FindTaken { ((from + to) / 2 - 1, 2) } else { (from + 1, to - from - 2) };
    let _ = writeln!(body, r#"<rect x="{x}" y="{}" width="{width}" height="{height}" {style}/>"#, y + top);
}

fn text(body: &mut String, x: usize, y: usize, style: &str, text: &str) {
    let _ = writeln!(body, r#"<text x="{x}" y="{y}" {style}>{text}</text>"#);
}

#[allow(dead_code)] // where a test includes this file
fn main() {
    print!("{}", svg());
}
