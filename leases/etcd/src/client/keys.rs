/// One key, or all keys that begin with a prefix.
///
/// Text and bytes convert into one key.
///
/// # Examples
/// ```
/// use keylatch_lease_etcd::client::{Keys, TxnOp};
///
/// let one = TxnOp::get("account/7/paid");
/// let all_of_an_account = TxnOp::get(Keys::prefix("account/7/"));
/// let all_of_the_cluster = TxnOp::get(Keys::prefix(""));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub(crate) start: Vec<u8>,
    /// The first key after the range. If it is empty, one key is meant; if it is `\0`, the range has no end.
    pub(crate) end: Vec<u8>,
}

/// A key that means "no limit" as the end of a range, and is the first possible key as its start.
const ZERO: &[u8] = &[0];

impl Keys {
    /// Selects all keys that begin with a prefix: every key, if the prefix is empty.
    #[must_use]
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let prefix = prefix.into();
        let end = after(&prefix);
        // etcd rejects an empty key.
        let start = if prefix.is_empty() { ZERO.to_vec() } else { prefix };
        Keys { start, end }
    }
}

impl Keys {
    /// Leaves out this key, and all before it.
    pub(crate) fn behind(self, key: &str) -> Self {
        let first = [key.as_bytes(), ZERO].concat();
        Keys { start: self.start.max(first), end: self.end }
    }
}

impl<K: Into<Vec<u8>>> From<K> for Keys {
    fn from(key: K) -> Self {
        Keys { start: key.into(), end: Vec::new() }
    }
}

/// Returns the first key after all that begin with a prefix; [`ZERO`] if there is none.
fn after(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|&byte| byte < u8::MAX) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        }
        None => ZERO.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, after};

    #[test]
    fn the_range_of_a_prefix_ends_where_its_last_byte_is_one_greater() {
        for (prefix, end) in [("a", "b"), ("shop/", "shop0"), ("az", "a{"), ("a\0", "a\u{1}")] {
            assert_eq!(after(prefix.as_bytes()), end.as_bytes(), "{prefix:?}");
        }
    }

    #[test]
    fn a_last_byte_that_cannot_be_incremented_is_left_out_of_the_end() {
        assert_eq!(after(b"a\xff"), b"b");
        assert_eq!(after(b"a\xfe\xff\xff"), b"a\xff");
    }

    #[test]
    fn the_range_of_a_prefix_of_greatest_bytes_has_no_end() {
        assert_eq!(after(b"\xff\xff"), [0]);
    }

    #[test]
    fn an_empty_prefix_selects_every_key() {
        assert_eq!(Keys::prefix(""), Keys { start: vec![0], end: vec![0] });
    }

    #[test]
    fn a_text_selects_one_key() {
        assert_eq!(Keys::from("a"), Keys { start: b"a".to_vec(), end: vec![] });
    }
}
