//! Figures, bars and the table.

use std::{fmt, fs, thread};

/// By how much a bar may be missed before `--check` fails: machines are never quiet.
const TOLERANCE: f64 = 1.2;

/// The smallest, middle and largest of some figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    /// The spread of some figures; zeros when there are none.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |idx: usize| sorted.get(idx).copied().unwrap_or_default();
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) };
        Self { min: at(0), median, max: at(sorted.len().saturating_sub(1)) }
    }

    /// The middle one.
    pub(super) fn median(self) -> f64 {
        self.median
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} / **{:.2}** / {:.2}", self.min, self.median, self.max)
    }
}

/// How good a figure has to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
    /// At most this many times the floor.
    Times(f64),
    /// At most the floor and this much.
    Plus(f64),
    /// At most this.
    Most(f64),
    /// Only told.
    None,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    what: String,
    unit: &'static str,
    floor: Option<Spread>,
    ours: Option<Spread>,
    bar: Bar,
    fact: String,
}

impl Row {
    /// A measured row.
    pub(super) fn new(
        what: impl Into<String>,
        unit: &'static str,
        floor: Option<Spread>,
        ours: Spread,
        bar: Bar,
    ) -> Self {
        Self { what: what.into(), unit, floor, ours: Some(ours), bar, fact: String::new() }
    }

    /// A row that holds one fact.
    pub(super) fn fact(what: &str, fact: String) -> Self {
        Self { what: what.to_owned(), unit: "", floor: None, ours: None, bar: Bar::None, fact }
    }

    /// The bar as a figure.
    fn limit(&self) -> Option<f64> {
        let floor = self.floor.map(Spread::median);
        match self.bar {
            Bar::Times(times) => Some(times * floor?),
            Bar::Plus(more) => Some(more + floor?),
            Bar::Most(most) => Some(most),
            Bar::None => None,
        }
    }

    /// Ours as a part of the bar: 1.0 just meets it.
    fn used(&self) -> Option<f64> {
        Some(self.ours?.median() / self.limit()?)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = |it: Option<Spread>| it.map_or("–".to_owned(), |it| it.to_string());
        let unit = if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) };
        write!(f, "| {}{unit} | {} | ", self.what, cell(self.floor))?;
        match self.ours {
            Some(ours) => write!(f, "{ours} | ")?,
            None => write!(f, "{} | ", self.fact)?,
        }
        match (self.ours, self.floor) {
            (Some(ours), Some(floor)) => {
                let (ours, floor) = (ours.median(), floor.median());
                write!(f, "× {:.2}, {:+.2} | ", ours / floor, ours - floor)?;
            }
            _ => f.write_str("– | ")?,
        }
        match self.bar {
            Bar::Times(times) => write!(f, "× {times}")?,
            Bar::Plus(more) => write!(f, "+ {more}")?,
            Bar::Most(most) => write!(f, "{most}")?,
            Bar::None => f.write_str("–")?,
        }
        let verdict = match self.used() {
            None => "",
            Some(used) if used <= 1.0 => "met",
            Some(used) if used <= TOLERANCE => "missed",
            Some(_) => "**missed**",
        };
        write!(f, " | {verdict} |")
    }
}

/// All rows.
#[derive(Debug)]
pub(super) struct Report {
    note: String,
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(note: String) -> Self {
        Self { note, rows: Vec::new() }
    }

    pub(super) fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }

    /// Whether no bar is missed by more than the tolerance.
    pub(super) fn is_met(&self) -> bool {
        self.rows.iter().filter_map(Row::used).all(|it| it <= TOLERANCE)
    }

    pub(super) fn print(&self) {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("?").to_owned();
        let spreads = self.rows.iter().filter_map(|it| it.floor).filter(|it| it.min > 0.0).map(|it| it.max / it.min);
        let noise = spreads.fold(1.0, f64::max);
        println!();
        println!(
            "{cpus} processors, load {load} at the end, {}; a floor's slowest run took up to {noise:.1} times its fastest.",
            self.note
        );
        println!("Cells: least / **median** / most. Bars apply to medians.");
        println!();
        println!("| measure | floor | bub | bub to floor | bar | |");
        println!("|---|---|---|---|---|---|");
        for row in &self.rows {
            println!("{row}");
        }
    }
}
