//! Keys and values that count themselves, and whose code panics, or does something else, on demand.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::rc::Rc;

/// It is told the place.
pub type Hook = Rc<dyn Fn(&'static str)>;

thread_local! {
    /// Which operation panics, and how many of them before it do not.
    static PANIC_IN: Cell<(&'static str, usize)> = const { Cell::new(("", 0)) };
    /// How many keys exist.
    pub static LIVE: Cell<usize> = const { Cell::new(0) };
    /// How many values exist.
    pub static LIVE_VALUES: Cell<usize> = const { Cell::new(0) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// The next operation at this place panics.
pub fn panic_in(place: &'static str) {
    panic_after(place, 0);
}

/// The one after so many does.
pub fn panic_after(place: &'static str, left: usize) {
    PANIC_IN.set((place, left));
}

/// No operation panics any more. Whether one was still to do so.
pub fn disarm() -> bool {
    !PANIC_IN.take().0.is_empty()
}

/// What is called at each place, from now on; not inside itself.
pub fn hook(f: Option<Hook>) {
    HOOK.set(f);
}

pub fn maybe_panic(place: &'static str) {
    if let Some(hook) = HOOK.take() {
        hook(place);
        HOOK.set(Some(hook));
    }
    let (panics, left) = PANIC_IN.get();
    if panics == place {
        PANIC_IN.set(if left == 0 { ("", 0) } else { (place, left - 1) });
        if left == 0 {
            resume_unwind(Box::new(place)); // without the words of the panic hook
        }
    }
}

/// A key that owns something, counts itself, and panics on demand. All hostile keys collide.
#[derive(Debug)]
pub struct Hostile(pub u32);

impl Hostile {
    pub fn new(n: u32) -> Self {
        LIVE.set(LIVE.get() + 1);
        Hostile(n)
    }
}

impl Clone for Hostile {
    fn clone(&self) -> Self {
        maybe_panic("clone");
        Hostile::new(self.0)
    }

    fn clone_from(&mut self, source: &Self) {
        maybe_panic("clone_from");
        self.0 = source.0;
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
        maybe_panic("drop");
    }
}

impl PartialEq for Hostile {
    fn eq(&self, other: &Self) -> bool {
        maybe_panic("eq");
        self.0 == other.0
    }
}

impl Eq for Hostile {}

impl Hash for Hostile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        maybe_panic("hash");
        state.write_u8(0);
    }
}

/// A value that does the same.
#[derive(Debug)]
pub struct Value(pub u32);

impl Value {
    pub fn new(n: u32) -> Self {
        LIVE_VALUES.set(LIVE_VALUES.get() + 1);
        Value(n)
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        maybe_panic("value's clone");
        Value::new(self.0)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        LIVE_VALUES.set(LIVE_VALUES.get() - 1);
        maybe_panic("value's drop");
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        maybe_panic("value's eq");
        self.0 == other.0
    }
}
