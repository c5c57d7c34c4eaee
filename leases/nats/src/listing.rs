//! The list of all subjects. The server returns a part at a time, in order, from an offset on. Between two parts
//! subjects are added and removed, which shifts the offsets of the others. So each part begins at a subject that is
//! already known, or before it.

/// The subjects that are known so far.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    all: Vec<String>,
    /// The offset of the next part.
    offset: usize,
    /// The number of known subjects that the next part repeats.
    overlap: usize,
}

impl Listing {
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Adds the part at the offset. `total` is the number of all subjects. Returns whether that was the last part.
    pub(crate) fn add(&mut self, part: impl IntoIterator<Item = String>, total: usize) -> bool {
        let mut part: Vec<String> = part.into_iter().collect();
        part.sort_unstable();
        let is_behind = match (self.all.last(), part.first()) {
            (Some(last), Some(first)) => first <= last,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if self.offset > 0 && !is_behind {
            // Removals may have shifted a subject that is not known yet to an offset before this part.
            self.offset = self.offset.saturating_sub(self.overlap);
            self.overlap = self.overlap.saturating_mul(2);
            return false;
        }
        let end = self.offset + part.len();
        let known = self.all.last().map_or(0, |last| part.partition_point(|subject| subject <= last));
        self.all.extend(part.drain(known..));
        // A part that repeats only known subjects must not be requested again.
        self.overlap = 1;
        self.offset = end.saturating_sub(1).max(self.offset + 1);
        end >= total
    }

    pub(crate) fn all(self) -> Vec<String> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Listing;

    /// Lists the subjects in parts of ten, with a change after each part.
    fn listed(server: &mut BTreeSet<String>, mut change: impl FnMut(usize, &mut BTreeSet<String>)) -> Vec<String> {
        let mut listing = Listing::default();
        for round in 0..10_000 {
            let part: Vec<String> = server.iter().skip(listing.offset()).take(10).cloned().collect();
            if listing.add(part, server.len()) {
                return listing.all();
            }
            change(round, server);
        }
        panic!("the listing does not end");
    }

    fn numbered(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<String> {
        numbers.into_iter().map(|number| format!("{number:05}")).collect()
    }

    #[test]
    fn a_server_that_does_not_change_is_listed_exactly() {
        for count in [0, 1, 9, 10, 11, 19, 20, 100] {
            let mut server = numbered(0..count);
            assert_eq!(listed(&mut server, |_, _| ()), Vec::from_iter(server.clone()), "{count}");
        }
    }

    #[test]
    fn a_subject_that_stays_is_listed_whatever_is_added_and_removed() {
        let stays = numbered((0..3000).filter(|number| number % 3 == 0));
        for gone in [1, 2, 7, 30, 400] {
            let mut server = numbered(0..3000);
            let goes = Vec::from_iter(server.difference(&stays).cloned());
            let mut goes = goes.into_iter();
            let all = listed(&mut server, |_, server| {
                for one in goes.by_ref().take(gone) {
                    server.remove(&one);
                }
            });
            assert!(
                stays.is_subset(&BTreeSet::from_iter(all.iter().cloned())),
                "a subject is missing, with {gone} removed after each part"
            );
            assert!(all.is_sorted_by(|one, next| one < next));

            let mut server = stays.clone();
            let all = listed(&mut server, |round, server| {
                server.extend((0..gone.min(8)).map(|at| format!("00000-{:05}", round * 10 + at)));
            });
            assert!(
                stays.is_subset(&BTreeSet::from_iter(all)),
                "a subject is missing, with up to {gone} added after each part"
            );
        }
    }

    #[test]
    fn a_listing_ends_when_all_subjects_are_removed() {
        let mut server = numbered(0..100);
        listed(&mut server, |_, server| server.clear());
    }
}
