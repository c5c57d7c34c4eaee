//! The subjects of messages, and their meaning.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use keylatch_lease::Resource;

/// The subjects of a namespace in a stream. Each name is encoded as one token, so it may contain any characters.
#[derive(Clone, Debug)]
pub(crate) struct Subjects {
    stream: String,
    namespace: String,
}

impl Subjects {
    pub(crate) fn new(stream: &str, namespace: &str) -> Self {
        Subjects { stream: stream.to_owned(), namespace: readable(namespace) }
    }

    pub(crate) fn lease(&self, resource: &Resource) -> String {
        let Subjects { stream, namespace } = self;
        format!("{stream}.lease.{namespace}.{}", last_tokens(resource))
    }

    /// Returns the pattern of all leases' subjects.
    pub(crate) fn leases(&self) -> String {
        format!("{}.lease.{}.*.*", self.stream, self.namespace)
    }

    /// Returns the subject of the namespace's mark, which is chosen so that a request that deletes all leases by the
    /// prefix of their subjects also deletes the mark.
    pub(crate) fn mark(&self) -> String {
        format!("{}.lease.{}.mark", self.stream, self.namespace)
    }

    /// Returns the subject of the stream's notifications about a resource.
    pub(crate) fn told(&self, resource: &Resource) -> String {
        let Subjects { stream, namespace } = self;
        format!("{stream}.told.{namespace}.{}", last_tokens(resource))
    }

    /// Returns the pattern of the stream's notifications about all resources.
    pub(crate) fn told_all(&self) -> String {
        format!("{}.told.{}.*.*", self.stream, self.namespace)
    }

    /// Returns the subject of the stream's notifications about the mark.
    pub(crate) fn told_mark(&self) -> String {
        format!("{}.told.{}.mark", self.stream, self.namespace)
    }

    /// Returns the subject of the message whose time is the time of the last sweep.
    pub(crate) fn swept(&self) -> String {
        format!("{}.clock.{}.swept", self.stream, self.namespace)
    }

    /// Returns the subject of messages that are stored to read the server's time.
    pub(crate) fn clock(&self) -> String {
        format!("{}.clock.{}.now", self.stream, self.namespace)
    }
}

/// Returns the tokens of a subject that stand for a resource.
fn last_tokens(resource: &Resource) -> String {
    // A token must not be empty.
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("e{}.k{}", encoded(resource.entity()), encoded(resource.key()))
}

/// Parses the resource from the subject of a lease or a notification.
pub(crate) fn resource(subject: &str) -> Option<Resource> {
    let mut tokens = subject.rsplit('.');
    let key = decoded(tokens.next()?.strip_prefix('k')?)?;
    let entity = decoded(tokens.next()?.strip_prefix('e')?)?;
    Some(Resource::new(entity, key))
}

fn decoded(token: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

/// Encodes a name as a token that can be read, so that permissions can be written by hand: ASCII letters, digits, `_`
/// and `-` stay, other bytes become `=` and two hexadecimal digits, and an empty name becomes `=`.
fn readable(name: &str) -> String {
    if name.is_empty() {
        return "=".into();
    }
    let mut token = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => token.push(char::from(byte)),
            _ => token.push_str(&format!("={byte:02X}")),
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::{Subjects, readable, resource};
    use keylatch_lease::Resource;

    #[test]
    fn a_subject_contains_any_resource() {
        let subjects = Subjects::new("leases", "shop");
        for (entity, key) in [("", ""), ("a", "b.c"), ("a.b", "c"), ("*", ">"), ("\0 \n", "\u{1f512}")] {
            let before = Resource::new(entity, key);
            let subject = subjects.lease(&before);
            assert!(subject.split('.').all(|token| !token.is_empty()), "{subject}");
            assert!(subject.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*' && byte != b'>'), "{subject}");
            assert_eq!(resource(&subject), Some(before.clone()));
            assert_eq!(subjects.told(&before), subject.replacen(".lease.", ".told.", 1));
        }
        assert_eq!(subjects.lease(&Resource::new("invoice", "7")), "leases.lease.shop.eaW52b2ljZQ.kNw");
    }

    #[test]
    fn any_namespace_is_encoded_readably() {
        assert_eq!(readable("shop_2-b"), "shop_2-b");
        assert_eq!(readable(""), "=");
        assert_eq!(readable("a.b>*= é"), "a=2Eb=3E=2A=3D=20=C3=A9");
    }

    #[test]
    fn a_foreign_subject_is_not_parsed() {
        for nonsense in ["", "a", "k", "e.k.x", "e!.k", "x.y", "k.e", "e_w.k"] {
            assert_eq!(resource(nonsense), None, "{nonsense}");
        }
    }
}
