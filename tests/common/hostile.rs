//! Keys and values that count themselves, and whose code panics or calls a hook on demand.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::rc::Rc;

/// A function that is called with the name of the place where it is called.
pub type Hook = Rc<dyn Fn(&'static str)>;

thread_local! {
    /// The operation that will panic, and the number of its calls that succeed before that.
    static PANIC_IN: Cell<(&'static str, usize)> = const { Cell::new(("", 0)) };
    /// The number of keys that exist.
    pub static LIVE: Cell<usize> = const { Cell::new(0) };
    /// The number of values that exist.
    pub static LIVE_VALUES: Cell<usize> = const { Cell::new(0) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Makes the next operation at this place panic.
pub fn panic_in(place: &'static str) {
    panic_after(place, 0);
}

/// Makes the operation at this place panic after `left` calls that succeed.
pub fn panic_after(place: &'static str, left: usize) {
    PANIC_IN.set((place, left));
}

/// Cancels the pending panic. Returns whether there was one.
pub fn disarm() -> bool {
    !PANIC_IN.take().0.is_empty()
}

/// Sets the hook that is called at each place. The hook is not called recursively.
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
            resume_unwind(Box::new(place)); // without the panic hook's message
        }
    }
}

/// A key that owns something, counts itself, and panics on demand. All hostile keys have the same hash.
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

/// A value that counts itself and panics on demand, as [`Hostile`] does.
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
