//! The dump of a detector: what each party holds, and what it waits for.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::holder::Holder;
use super::registry::{Registry, What};
use crate::core::{PlaceState, Want, wait_mode};
use crate::wait_event::WaitMode;

/// The tracked holds and waits of a detector, by party: the result of [`Detector::dump`](super::Detector::dump).
///
/// `Display` and `Debug` write a line for each party, and below it a line for each hold and each wait.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::Detector};
///
/// # futures_lite::future::block_on(async {
/// let (files, detector) = (KeyedMutex::<String>::new(), Detector::new());
/// let import = detector.party("import");
/// let a = import.acquire(files.lock("a")).await.unwrap();
/// let export = detector.party("export");
/// let mut waiting = export.acquire(files.lock("a"));
/// assert!(futures_lite::future::poll_once(&mut waiting).await.is_none());
///
/// let dump = detector.dump();
/// let [import, export] = dump.parties() else { panic!() };
/// assert_eq!((import.name(), import.holds()[0].key()), ("import", Some("\"a\"")));
/// let wait = &export.waits()[0];
/// assert_eq!((wait.key(), wait.held_by()), ("\"a\"", ["import".to_string()].as_slice()));
/// # drop((a, waiting));
/// # });
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct DetectorDump {
    parties: Vec<PartyDump>,
}

/// A party in a [`DetectorDump`], with its holds and waits.
///
/// # Examples
/// See [`DetectorDump`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartyDump {
    name: Cow<'static, str>,
    holds: Vec<HoldDump>,
    waits: Vec<WaitDump>,
}

/// A hold of a party in a [`DetectorDump`].
///
/// # Examples
/// See [`DetectorDump`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldDump {
    key: Option<String>,
    table: &'static str,
    mode: WaitMode,
    holder: Option<Holder>,
}

/// A request of a party that waits, in a [`DetectorDump`].
///
/// # Examples
/// See [`DetectorDump`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitDump {
    key: String,
    table: &'static str,
    mode: WaitMode,
    is_granted: bool,
    held_by: Vec<String>,
}

impl DetectorDump {
    pub(super) fn of(registry: &mut Registry) -> Self {
        let mut parties = Vec::new();
        registry.each_party(|registry, party, name| {
            let mut dump = PartyDump { name: name.to_string().into(), holds: Vec::new(), waits: Vec::new() };
            for (_, record) in registry.of_party(party) {
                match &record.what {
                    What::Holds(held) => {
                        // Another record of the same key may know its name.
                        let others = || registry.of_entry(record.entry).map(|(_, other)| &other.what);
                        let key = held.key().cloned().or_else(|| others().find_map(key_of));
                        let mode = wait_mode(Want::Hold(held.access));
                        dump.holds.push(HoldDump { key, table: held.table, mode, holder: held.holder() });
                    }
                    What::Waits(wait) => {
                        let holders = registry.of_entry(record.entry);
                        let holders = holders.filter(|(_, other)| matches!(other.what, What::Holds(_)));
                        let mut holders = holders.map(|(_, other)| other.party).collect::<Vec<_>>();
                        if let Want::Upgrade = wait.want {
                            // An upgrade does not wait for the hold that it upgrades.
                            if let Some(own) = holders.iter().position(|&holder| holder == party) {
                                holders.swap_remove(own);
                            }
                        }
                        holders.sort_unstable();
                        holders.dedup();
                        let name_of = |party: u32| registry.parties[party].name.to_string();
                        dump.waits.push(WaitDump {
                            key: wait.key(),
                            table: wait.table,
                            mode: wait_mode(wait.want),
                            is_granted: wait.place.state() == PlaceState::Granted,
                            held_by: holders.into_iter().map(name_of).collect(),
                        });
                    }
                }
            }
            // A party's records begin with the newest, but its dump begins with the oldest.
            dump.holds.reverse();
            dump.waits.reverse();
            parties.push(dump);
        });
        DetectorDump { parties }
    }

    /// Returns the parties that hold or wait for anything.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn parties(&self) -> &[PartyDump] {
        &self.parties
    }
}

fn key_of(what: &What) -> Option<String> {
    match what {
        What::Holds(held) => held.key().cloned(),
        What::Waits(wait) => Some(wait.key()),
    }
}

impl PartyDump {
    /// Returns the party's name.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the party's holds, the oldest first.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn holds(&self) -> &[HoldDump] {
        &self.holds
    }

    /// Returns the party's requests that wait, the oldest first.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn waits(&self) -> &[WaitDump] {
        &self.waits
    }
}

impl HoldDump {
    /// Returns the held key, as its `Debug` shows it; `None` if it is not known. The key is known if a party waits for
    /// it, if one of its tracked holders had to wait for it, or if the detector [names its
    /// holders](super::DetectorBuilder::name_holders).
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the type of the key's table, as [`core::any::type_name`] names it; for a latch, `keylatch::Latch`.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }

    /// Returns the access that the holder has.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn mode(&self) -> WaitMode {
        self.mode
    }
}

impl HoldDump {
    /// Returns when, from which source line and with which label the party acquired the key, if the detector [names its
    /// holders](super::DetectorBuilder::name_holders).
    ///
    /// # Examples
    /// See [`Holder`].
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }
}

impl WaitDump {
    /// Returns the key that the request waits for, as its `Debug` shows it.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the type of the key's table, as [`core::any::type_name`] names it; for a latch, `keylatch::Latch`.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }

    /// Returns the access that the request waits for.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn mode(&self) -> WaitMode {
        self.mode
    }

    /// Returns whether the key has been handed to the request, and the request has not been polled since.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.is_granted
    }

    /// Returns the names of the parties that hold the key. (For an upgrade, the hold that it upgrades does not count.)
    /// The list is empty if no tracked caller holds the key: the request may wait only for others in the queue.
    ///
    /// # Examples
    /// See [`DetectorDump`].
    #[must_use]
    pub fn held_by(&self) -> &[String] {
        &self.held_by
    }
}

impl fmt::Display for DetectorDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for party in &self.parties {
            writeln!(f, "{}", party.name)?;
            for HoldDump { key, table, mode, holder } in &party.holds {
                match key {
                    Some(key) => write!(f, "  holds {key} ({mode})")?,
                    None => write!(f, "  holds a key of {table} ({mode})")?,
                }
                match holder {
                    Some(holder) => writeln!(f, " {holder}")?,
                    None => writeln!(f)?,
                }
            }
            for WaitDump { key, mode, is_granted, held_by, .. } in &party.waits {
                write!(f, "  waits for {key} ({mode})")?;
                if *is_granted {
                    write!(f, ", which it has been granted")?;
                }
                for (at, holder) in held_by.iter().enumerate() {
                    write!(f, "{}{holder}", if at == 0 { ", which " } else { " and " })?;
                }
                match held_by.len() {
                    0 => writeln!(f)?,
                    1 => writeln!(f, " holds")?,
                    _ => writeln!(f, " hold")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DetectorDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
