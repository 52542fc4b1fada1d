//! The measured figures and their bars.

use anyhow::Result;
use serde_json::json;

/// How the rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Format {
    Table,
    Json,
}

/// The requirement for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::bench) enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::bench) struct Row {
    pub(in crate::bench) name: String,
    pub(in crate::bench) unit: &'static str,
    pub(in crate::bench) samples: usize,
    pub(in crate::bench) median: f64,
    pub(in crate::bench) p99: f64,
    /// Name and median of the baseline.
    pub(in crate::bench) baseline: Option<(String, f64)>,
    /// The value that the bar applies to: the ratio of the medians, or the figure itself without a
    /// baseline.
    pub(in crate::bench) ratio: f64,
    pub(in crate::bench) bar: Bar,
}

impl Row {
    /// We take at most `most` times as long as the baseline.
    pub(in crate::bench) fn at_most_slower(
        name: &str,
        ours: &[f64],
        other: (&str, &[f64]),
        most: f64,
    ) -> Self {
        let row = Self::figures(name, "ms", &to_milliseconds(ours), Bar::AtMost(most));
        row.with_baseline(other, |ours, other| ours / other)
    }

    /// We take at most `most` milliseconds longer than the baseline.
    pub(in crate::bench) fn at_most_later(
        name: &str,
        ours: &[f64],
        other: (&str, &[f64]),
        most: f64,
    ) -> Self {
        let row = Self::figures(name, "ms", &to_milliseconds(ours), Bar::AtMost(most));
        row.with_baseline(other, |ours, other| ours - other)
    }

    /// The baseline takes at least `least` times as long.
    pub(in crate::bench) fn at_least_faster(
        name: &str,
        ours: &[f64],
        other: (&str, &[f64]),
        least: f64,
    ) -> Self {
        let row = Self::figures(name, "ms", &to_milliseconds(ours), Bar::AtLeast(least));
        row.with_baseline(other, |ours, other| other / ours)
    }

    /// How many times longer the baseline takes, without a bar.
    pub(in crate::bench) fn for_information(name: &str, ours: &[f64], other: (&str, &[f64])) -> Self {
        Self::at_least_faster(name, ours, other, 0.0)
    }

    /// Our figure is at most this fraction of the baseline's.
    pub(in crate::bench) fn share(
        name: &str,
        unit: &'static str,
        ours: f64,
        other: (&str, f64),
        most: f64,
    ) -> Self {
        let row = Self::figures(name, unit, &[ours], Bar::AtMost(most));
        Self { ratio: ours / other.1, baseline: Some((other.0.to_owned(), other.1)), ..row }
    }

    /// Figures with a bar of their own.
    pub(in crate::bench) fn figures(name: &str, unit: &'static str, figures: &[f64], bar: Bar) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: usize| {
            sorted.get(sorted.len().saturating_sub(1) * share / 100).copied().unwrap_or(f64::NAN)
        };
        Self {
            name: name.to_owned(),
            unit,
            samples: sorted.len(),
            median: at(50),
            p99: at(99),
            baseline: None,
            ratio: at(50),
            bar,
        }
    }

    fn with_baseline(mut self, (name, times): (&str, &[f64]), ratio: fn(f64, f64) -> f64) -> Self {
        let other = Self::figures(name, "ms", &to_milliseconds(times), self.bar).median;
        self.ratio = ratio(self.median, other);
        self.baseline = Some((name.to_owned(), other));
        self
    }

    pub(in crate::bench) fn is_met(&self) -> bool {
        match self.bar {
            Bar::AtMost(most) => self.ratio <= most,
            Bar::AtLeast(least) => self.ratio >= least,
        }
    }
}

fn to_milliseconds(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| seconds * 1000.0).collect()
}

pub(in crate::bench) fn print(rows: &[Row], format: Format) -> Result<()> {
    match format {
        Format::Json => {
            let rows: Vec<_> = rows.iter().map(to_json).collect();
            println!("{}", serde_json::to_string_pretty(&rows)?);
        }
        Format::Table => {
            println!(
                "| {:47} | {:>5} | {:>11} | {:>8} | {:>24} | {:>7} | {:>8} | {:7} |",
                "name", "count", "median", "p99", "baseline", "ratio", "bar", "verdict"
            );
            println!(
                "|{}|",
                [
                    "-".repeat(49),
                    "-".repeat(7),
                    "-".repeat(13),
                    "-".repeat(10),
                    "-".repeat(26),
                    "-".repeat(9),
                    "-".repeat(10),
                    "-".repeat(9)
                ]
                .join("|")
            );
            rows.iter().for_each(|row| println!("{}", line(row)));
        }
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let baseline =
        row.baseline.as_ref().map_or_else(String::new, |(name, median)| format!("{name} {median:.2}"));
    let bar = match row.bar {
        Bar::AtMost(most) => format!("<= {most:.2}"),
        Bar::AtLeast(least) => format!(">= {least:.2}"),
    };
    let verdict = if row.is_met() { "met" } else { "missed" };
    format!(
        "| {:47} | {:5} | {:7.2} {:3} | {:8.2} | {baseline:>24} | {:7.2} | {bar:>8} | {verdict:7} |",
        row.name, row.samples, row.median, row.unit, row.p99, row.ratio
    )
}

fn to_json(row: &Row) -> serde_json::Value {
    let (bar, limit) = match row.bar {
        Bar::AtMost(most) => ("at most", most),
        Bar::AtLeast(least) => ("at least", least),
    };
    json!({
        "name": row.name,
        "unit": row.unit,
        "samples": row.samples,
        "median": row.median,
        "p99": row.p99,
        "baseline": row.baseline.as_ref().map(|(name, median)| json!({ "name": name, "median": median })),
        "ratio": row.ratio,
        "bar": { "is": bar, "limit": limit },
        "met": row.is_met(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_compares_medians_and_knows_its_bar() {
        let (ours, other) = ([0.001, 0.002, 0.009], [0.004, 0.004, 0.001]);
        let slower = Row::at_most_slower("a", &ours, ("b", &other), 0.4);
        assert_eq!((slower.median, slower.ratio, slower.is_met()), (2.0, 0.5, false));
        let faster = Row::at_least_faster("a", &ours, ("b", &other), 2.0);
        assert_eq!((faster.baseline.clone(), faster.ratio), (Some(("b".to_owned(), 4.0)), 2.0));
        assert!(faster.is_met());
        assert!(!Row::figures("none", "", &[], Bar::AtMost(1.0)).is_met());
    }
}
