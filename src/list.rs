//! A list that allocates only for two values or more.

use alloc::vec::{self, Vec};

/// A list that stores a single value inline. `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub enum List<T> {
    Few(Option<T>),
    Many(Vec<T>),
}

/// The largest size hint that is trusted for a reservation.
const MOST_RESERVED: usize = 1024;

impl<T> Default for List<T> {
    #[inline]
    fn default() -> Self {
        List::Few(None)
    }
}

impl<T> List<T> {
    /// Allocates memory for the expected number of values, up to a bound.
    pub(crate) fn room_for(expected: usize) -> Vec<T> {
        Vec::with_capacity(expected.min(MOST_RESERVED))
    }

    /// Reserves memory for `more` values, up to a bound.
    pub(crate) fn reserve(&mut self, more: usize) {
        let more = more.min(MOST_RESERVED);
        match self {
            List::Few(few) if usize::from(few.is_some()) + more < 2 => {}
            List::Few(few) => {
                let mut many = Vec::with_capacity(more + usize::from(few.is_some()));
                many.extend(few.take());
                *self = List::Many(many);
            }
            List::Many(many) => many.reserve(more),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        match self {
            List::Few(few @ None) => *few = Some(value),
            List::Few(Some(_)) => {
                self.reserve(3);
                self.push(value);
            }
            List::Many(many) => many.push(value),
        }
    }

    /// Appends the values of `other`. An empty list takes over the memory of `other`.
    #[inline]
    pub(crate) fn append(&mut self, other: List<T>) {
        if self.as_slice().is_empty() {
            *self = other;
            return;
        }
        self.reserve(other.as_slice().len());
        other.into_iter().for_each(|value| self.push(value));
    }

    /// Maps the elements with `f`, and drops those for which it returns `None`. The memory is reused if it is large
    /// enough.
    #[inline]
    pub(crate) fn filter_map<U>(self, mut f: impl FnMut(T) -> Option<U>) -> List<U> {
        match self {
            List::Few(few) => List::Few(few.and_then(f)),
            List::Many(many) => List::Many(many.into_iter().filter_map(&mut f).collect()),
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        match self {
            List::Few(few) => few.take(),
            List::Many(many) => many.pop(),
        }
    }

    /// Removes and returns the element at an index; the others keep their order.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        match self {
            List::Few(few) => few.take_if(|_| index == 0),
            List::Many(many) => (index < many.len()).then(|| many.remove(index)),
        }
    }

    /// Removes all but the first of consecutive values with the same key.
    pub(crate) fn dedup_by_key<K: PartialEq>(&mut self, key: impl FnMut(&mut T) -> K) {
        if let List::Many(many) = self {
            many.dedup_by_key(key);
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            List::Few(few) => few.as_slice(),
            List::Many(many) => many,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            List::Few(few) => few.as_mut_slice(),
            List::Many(many) => many,
        }
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values = values.into_iter();
        let mut list = List::default();
        list.reserve(values.size_hint().0);
        for value in values {
            list.push(value);
        }
        list
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    #[inline]
    fn into_iter(self) -> IntoIter<T> {
        match self {
            List::Few(few) => IntoIter::Few(few),
            List::Many(many) => IntoIter::Many(many.into_iter()),
        }
    }
}

#[allow(unreachable_pub, missing_debug_implementations)]
pub enum IntoIter<T> {
    Few(Option<T>),
    Many(vec::IntoIter<T>),
}

impl<T> IntoIter<T> {
    /// Takes the remaining values.
    pub(crate) fn take_rest(&mut self) -> List<T> {
        match core::mem::replace(self, IntoIter::Few(None)) {
            IntoIter::Few(few) => List::Few(few),
            IntoIter::Many(many) => List::Many(many.collect()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            IntoIter::Few(few) => few.as_slice(),
            IntoIter::Many(many) => many.as_slice(),
        }
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match self {
            IntoIter::Few(few) => few.take(),
            IntoIter::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.as_slice().len();
        (len, Some(len))
    }
}

impl<T> DoubleEndedIterator for IntoIter<T> {
    fn next_back(&mut self) -> Option<T> {
        match self {
            IntoIter::Few(few) => few.take(),
            IntoIter::Many(many) => many.next_back(),
        }
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}
impl<T> core::iter::FusedIterator for IntoIter<T> {}
