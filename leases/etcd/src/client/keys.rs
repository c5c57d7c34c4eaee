/// One key, or all keys that begin with a prefix.
///
/// Text and bytes are one key.
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
    /// The first key that is not meant any more. Empty: one key is meant. `\0`: all from the start on.
    pub(crate) end: Vec<u8>,
}

/// The end of an unlimited range; as a start, the first key of all.
const ZERO: &[u8] = &[0];

impl Keys {
    /// Selects all keys that begin with a prefix: all there are, if it is empty.
    #[must_use]
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let prefix = prefix.into();
        let end = after(&prefix);
        // An empty key means no key.
        let start = if prefix.is_empty() { ZERO.to_vec() } else { prefix };
        Keys { start, end }
    }
}

impl<K: Into<Vec<u8>>> From<K> for Keys {
    fn from(key: K) -> Self {
        Keys { start: key.into(), end: Vec::new() }
    }
}

/// Returns the first key after all that begin with a prefix.
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
    fn a_prefix_ends_where_its_last_byte_is_one_greater() {
        for (prefix, end) in [("a", "b"), ("shop/", "shop0"), ("az", "a{"), ("a\0", "a\u{1}")] {
            assert_eq!(after(prefix.as_bytes()), end.as_bytes(), "{prefix:?}");
        }
    }

    #[test]
    fn a_last_byte_that_cannot_be_greater_is_left_out() {
        assert_eq!(after(b"a\xff"), b"b");
        assert_eq!(after(b"a\xfe\xff\xff"), b"a\xff");
    }

    #[test]
    fn a_prefix_of_greatest_bytes_has_no_end() {
        assert_eq!(after(b"\xff\xff"), [0]);
    }

    #[test]
    fn an_empty_prefix_is_every_key() {
        assert_eq!(Keys::prefix(""), Keys { start: vec![0], end: vec![0] });
    }

    #[test]
    fn text_is_one_key() {
        assert_eq!(Keys::from("a"), Keys { start: b"a".to_vec(), end: vec![] });
    }
}
