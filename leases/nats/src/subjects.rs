//! Which message is about what: subjects, and what they say.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use keylatch_lease::Resource;

/// The subjects of a namespace in a stream. Names are tokens of their own, and may be anything.
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
        // A token must not be empty.
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{stream}.lease.{namespace}.e{}.k{}", encoded(resource.entity()), encoded(resource.key()))
    }

    /// All leases.
    pub(crate) fn leases(&self) -> String {
        format!("{}.lease.{}.*.*", self.stream, self.namespace)
    }

    /// The namespace's mark: whatever deletes all leases deletes it, too.
    pub(crate) fn mark(&self) -> String {
        format!("{}.lease.{}.mark", self.stream, self.namespace)
    }

    /// Notifications of the stream about all leases, and about the mark.
    pub(crate) fn told(&self) -> String {
        format!("{}.told.{}.>", self.stream, self.namespace)
    }

    /// A message that says when the last sweep was.
    pub(crate) fn swept(&self) -> String {
        format!("{}.clock.{}.swept", self.stream, self.namespace)
    }

    /// A message for the sake of its time.
    pub(crate) fn clock(&self) -> String {
        format!("{}.clock.{}.now", self.stream, self.namespace)
    }
}

/// The meaning of a subject, among those of leases and of notifications.
pub(crate) fn resource(subject: &str) -> Option<Resource> {
    let mut tokens = subject.rsplit('.');
    let key = decoded(tokens.next()?.strip_prefix('k')?)?;
    let entity = decoded(tokens.next()?.strip_prefix('e')?)?;
    Some(Resource::new(entity, key))
}

fn decoded(token: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

/// Letters, digits, `_` and `-` as they are, so that permissions can be given by name; other bytes as `=` and two digits; nothing as `=`.
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
    fn a_subject_names_a_resource_whatever_its_name() {
        let subjects = Subjects::new("leases", "shop");
        for (entity, key) in [("", ""), ("a", "b.c"), ("a.b", "c"), ("*", ">"), ("\0 \n", "\u{1f512}")] {
            let there = Resource::new(entity, key);
            let subject = subjects.lease(&there);
            assert!(subject.split('.').all(|token| !token.is_empty()), "{subject}");
            assert!(subject.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*' && byte != b'>'), "{subject}");
            assert_eq!(resource(&subject), Some(there));
        }
        assert_eq!(subjects.lease(&Resource::new("invoice", "7")), "leases.lease.shop.eaW52b2ljZQ.kNw");
    }

    #[test]
    fn a_namespace_can_be_read_and_be_anything() {
        assert_eq!(readable("shop_2-b"), "shop_2-b");
        assert_eq!(readable(""), "=");
        assert_eq!(readable("a.b>*= é"), "a=2Eb=3E=2A=3D=20=C3=A9");
    }

    #[test]
    fn what_is_not_a_subject_of_ours_names_nothing() {
        for nonsense in ["", "a", "k", "e.k.x", "e!.k", "x.y", "k.e", "e_w.k"] {
            assert_eq!(resource(nonsense), None, "{nonsense}");
        }
    }
}
