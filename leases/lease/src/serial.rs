//! The serialised forms of the values, written by hand so that no derive macros are needed.
//!
//! | value | form |
//! |---|---|
//! | resource | the pair of entity and key |
//! | owner | its id |
//! | token | a number |
//! | grant | a struct of its fields; the expiry is a triple of its name and its two durations, or nothing if it is custom |

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::{Expiry, Grant, Owner, Resource, Term, Token};

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.entity(), self.key()).serialize(serializer)
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (entity, key) = <(String, String)>::deserialize(deserializer)?;
        Ok(Self::new(entity, key))
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|id| Self::from_id(&id))
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("a token must not be zero"))
    }
}

/// An expiry that is not custom.
struct Plain(Expiry);

impl Plain {
    fn of(expiry: &Expiry) -> Option<Self> {
        if matches!(expiry, Expiry::Custom(_)) { None } else { Some(Self(expiry.clone())) }
    }
}

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match self.0 {
            Expiry::Fixed(_) => "fixed",
            Expiry::Sliding(_) => "sliding",
            Expiry::SlidingUpTo { .. } => "sliding_up_to",
            Expiry::Never => "never",
            Expiry::Custom(_) => return Err(serde::ser::Error::custom("a custom expiry is not serialised")),
        };
        let Term { idle, total } = self.0.term().unwrap_or(Term::FOREVER);
        (name, idle, total).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, idle, total) = <(String, Option<Duration>, Option<Duration>)>::deserialize(deserializer)?;
        let expiry = match (name.as_str(), idle, total) {
            ("fixed", Some(idle), Some(total)) if idle == total => Expiry::Fixed(total),
            ("sliding", Some(idle), None) => Expiry::Sliding(idle),
            ("sliding_up_to", Some(idle), Some(total)) => Expiry::SlidingUpTo { idle, total },
            ("never", None, None) => Expiry::Never,
            _ => return Err(de::Error::custom("unknown expiry, or its durations do not fit its kind")),
        };
        match expiry.zero() {
            Some(argument) => {
                Err(de::Error::custom(format_args!("the duration of a lease must not be zero: {argument}")))
            }
            None => Ok(Self(expiry)),
        }
    }
}

const FIELDS: &[&str] = &["resource", "owner", "token", "resumed", "start", "end", "expiry"];

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { resource, owner, token, resumed, start, end, expiry } = self;
        let mut fields = serializer.serialize_struct("Grant", FIELDS.len())?;
        fields.serialize_field("resource", resource)?;
        fields.serialize_field("owner", owner)?;
        fields.serialize_field("token", token)?;
        fields.serialize_field("resumed", resumed)?;
        fields.serialize_field("start", start)?;
        fields.serialize_field("end", end)?;
        fields.serialize_field("expiry", &expiry.as_ref().and_then(Plain::of))?;
        fields.end()
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for Grant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Grant", FIELDS, Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Grant;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a grant")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Grant, A::Error> {
        fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(fields: &mut A, index: usize) -> Result<T, A::Error> {
            fields.next_element()?.ok_or_else(|| de::Error::invalid_length(index, &Fields))
        }
        Ok(Grant {
            resource: next(&mut fields, 0)?,
            owner: next(&mut fields, 1)?,
            token: next(&mut fields, 2)?,
            resumed: next(&mut fields, 3)?,
            start: next(&mut fields, 4)?,
            end: next(&mut fields, 5)?,
            expiry: next::<Option<Plain>, A>(&mut fields, 6)?.map(|plain| plain.0),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Grant, A::Error> {
        fn read<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
            fields: &mut A,
            slot: &mut Option<T>,
            name: &'static str,
        ) -> Result<(), A::Error> {
            if slot.is_some() {
                return Err(de::Error::duplicate_field(name));
            }
            *slot = Some(fields.next_value()?);
            Ok(())
        }
        fn found<T, E: de::Error>(slot: Option<T>, name: &'static str) -> Result<T, E> {
            slot.ok_or_else(|| E::missing_field(name))
        }

        let (mut resource, mut owner, mut token, mut resumed) = (None, None, None, None);
        let (mut start, mut end, mut expiry) = (None, None, None::<Option<Plain>>);
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "resource" => read(&mut fields, &mut resource, "resource")?,
                "owner" => read(&mut fields, &mut owner, "owner")?,
                "token" => read(&mut fields, &mut token, "token")?,
                "resumed" => read(&mut fields, &mut resumed, "resumed")?,
                "start" => read(&mut fields, &mut start, "start")?,
                "end" => read(&mut fields, &mut end, "end")?,
                "expiry" => read(&mut fields, &mut expiry, "expiry")?,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Grant {
            resource: found(resource, "resource")?,
            owner: found(owner, "owner")?,
            token: found(token, "token")?,
            resumed: found(resumed, "resumed")?,
            start: found(start, "start")?,
            end: found(end, "end")?,
            expiry: found(expiry, "expiry")?.map(|plain| plain.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Expiry, Grant, Owner, Resource, Token};

    #[test]
    fn a_custom_expiry_is_left_out() {
        let token = Token::new(7).expect("not zero");
        let expiry = Some(Expiry::custom(Some));
        let end = Some(Duration::MAX);
        let grant = Grant::new(Resource::new("a", "b"), Owner::named("o"), token, true, Duration::ZERO, end, expiry);

        let text = serde_json::to_string(&grant).expect("a grant can be written");
        let read: Grant = serde_json::from_str(&text).expect("a written grant can be read");
        assert_eq!(read, Grant { expiry: None, ..grant });
        assert!(read.is_resumed());
    }
}
