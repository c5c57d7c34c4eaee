//! The form of requests and answers on the wire.

use std::time::Duration;

use keylatch_lease::{
    Owner, Resource, Term, Token,
    engine::{Gone, Record},
};

pub(super) fn text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

pub(super) fn un_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                _ => '\\',
            },
            char => char,
        });
    }
    plain
}

pub(super) fn time(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| time.as_nanos().to_string())
}

/// A message that is read field by field.
pub(super) struct Fields<'a>(pub(super) std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    pub(super) fn word(&mut self) -> &'a str {
        self.0.next().unwrap_or("")
    }

    pub(super) fn text(&mut self) -> String {
        un_text(self.word())
    }

    pub(super) fn resource(&mut self) -> Resource {
        let entity = self.text();
        Resource::new(entity, self.text())
    }

    pub(super) fn owner(&mut self) -> Owner {
        Owner::from_id(&self.text())
    }

    pub(super) fn number(&mut self) -> u64 {
        self.word().parse().unwrap_or(0)
    }

    pub(super) fn token(&mut self) -> Option<Token> {
        Token::new(self.number())
    }

    pub(super) fn time(&mut self) -> Option<Duration> {
        let nanos: u128 = self.word().parse().ok()?;
        Some(Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32))
    }

    pub(super) fn term(&mut self) -> Option<Term> {
        let is_there = self.word() == "term";
        let (idle, total) = (self.time(), self.time());
        is_there.then_some(Term { idle, total })
    }
}

pub(super) fn name(resource: &Resource) -> String {
    format!("{}\t{}", text(resource.entity()), text(resource.key()))
}

pub(super) fn term(term: &Option<Term>) -> String {
    match term {
        Some(Term { idle, total }) => format!("term\t{}\t{}", time(*idle), time(*total)),
        None => "none\t-\t-".to_owned(),
    }
}

pub(super) fn record(record: &Record) -> String {
    let Record { owner, token, held_for, remaining } = record;
    format!("{}\t{token}\t{}\t{}", text(owner.id()), time(Some(*held_for)), time(*remaining))
}

pub(super) fn un_record(fields: &mut Fields<'_>) -> Option<Record> {
    let (owner, token) = (fields.owner(), fields.token()?);
    Some(Record { owner, token, held_for: fields.time()?, remaining: fields.time() })
}

pub(super) fn gone(fields: &mut Fields<'_>) -> Option<Gone> {
    Some(match fields.word() {
        "released" => Gone::Released,
        "not held" => Gone::NotHeld,
        "not owner" => Gone::NotOwner(fields.owner()),
        _ => return None,
    })
}
