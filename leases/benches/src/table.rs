//! Tables of measured figures and their goals.

use keylatch_benches::report::{figure, median};

/// The factor by which a time or a ratio may miss its goal before [`Table::misses`] counts it, because the placement of
/// code in memory and the other load of the machine vary.
const TOLERANCE: f64 = 1.15;

#[derive(Clone, Copy)]
pub enum Goal {
    /// The greatest ratio of times that meets the goal.
    Ratio(f64),
    /// The longest time of our own that meets the goal.
    Time(f64),
    /// The greatest figure of our own that meets the goal. The figure is the same in each run.
    Exact(f64),
    /// Like `Time`, but a miss proves nothing, because the machine has other load.
    TimeIfQuiet(f64),
    /// No goal: the figure is for information.
    None,
}

/// A table whose rows are printed as they are added.
pub struct Table {
    unit: &'static str,
    misses: Vec<String>,
}

impl Table {
    pub fn begin(unit: &'static str) -> Self {
        println!("\n| what | ours, {unit} | peer, {unit} | ratio | goal | met |");
        println!("| --- | ---: | ---: | ---: | --- | --- |");
        Table { unit, misses: Vec::new() }
    }

    /// Adds our figures and those of a peer, measured in the same rounds. The ratio is the median over the rounds.
    pub fn compare(&mut self, what: &str, ours: &[f64], peer: (&str, &[f64]), goal: Goal) {
        let ratios: Vec<_> = ours.iter().zip(peer.1).map(|(ours, peer)| ours / peer).collect();
        let peer = format!("{} {}", peer.0, figure(median(peer.1)));
        let median_of_ours = median(ours);
        self.row(what, median_of_ours, &figure(median_of_ours), &peer, Some(median(&ratios)), goal);
    }

    pub fn single(&mut self, what: &str, ours: f64, goal: Goal) {
        self.row(what, ours, &figure(ours), "", None, goal);
    }

    /// Adds a row like [`Table::single`], but with a description of each figure in its cell.
    pub fn described(&mut self, what: &str, (ours, cell): (f64, &str), peer: Option<(f64, &str)>, goal: Goal) {
        self.row(what, ours, cell, peer.map_or("", |(_, cell)| cell), peer.map(|(peer, _)| ours / peer), goal);
    }

    fn row(&mut self, what: &str, value: f64, ours: &str, peer: &str, ratio: Option<f64>, goal: Goal) {
        let (is, most, tolerance) = match goal {
            Goal::Ratio(most) => (ratio.unwrap_or(f64::NAN), most, TOLERANCE),
            Goal::Time(most) => (value, most, TOLERANCE),
            Goal::Exact(most) => (value, most, 1.0),
            Goal::TimeIfQuiet(most) => (value, most, f64::INFINITY),
            Goal::None => (0.0, 0.0, 1.0),
        };
        let (met, missed) = (is <= most, is.is_nan() || is > most * tolerance);
        let met = match goal {
            Goal::None => "",
            _ if met => "yes",
            Goal::TimeIfQuiet(_) => "the machine is too busy to tell",
            _ => "NO",
        };
        let goal = match goal {
            Goal::None => String::new(),
            Goal::Ratio(_) => format!("≤ {most}"),
            Goal::Time(_) | Goal::TimeIfQuiet(_) | Goal::Exact(_) => format!("≤ {most} {}", self.unit),
        };
        let ratio = ratio.map(figure).unwrap_or_default();
        println!("| {what} | {ours} | {peer} | {ratio} | {goal} | {met} |");
        if missed {
            self.misses.push(what.to_owned());
        }
    }

    /// Returns the rows that missed their goals by more than the tolerance.
    pub fn misses(self) -> Vec<String> {
        self.misses
    }
}

/// Runs every candidate in every round. Returns a series for each candidate and each of its `N` figures.
pub fn rounds<const N: usize>(
    candidates: usize,
    rounds: usize,
    mut run: impl FnMut(usize) -> [f64; N],
) -> Vec<[Vec<f64>; N]> {
    let mut figures = vec![[const { Vec::new() }; N]; candidates];
    for round in 0..rounds {
        for i in 0..candidates {
            // Each round begins with another candidate, because running first may be a handicap.
            let i = (i + round) % candidates;
            for (series, figure) in figures[i].iter_mut().zip(run(i)) {
                series.push(figure);
            }
        }
    }
    figures
}
