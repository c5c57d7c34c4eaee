//! Bar charts, and pages whose tables are filled in.

use std::fmt::Write;

/// Returns the page with the text between each `<!-- table: NAME -->` and `<!-- end -->` replaced by `table(NAME)`.
pub fn fill_tables(page: &str, table: impl Fn(&str) -> String) -> String {
    const END: &str = "<!-- end -->";
    let mut filled = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("<!-- table: ") {
        let (name, after) = after.split_once(" -->").expect("a table mark is closed");
        let (_, after) = after.split_once(END).expect("a table has an end");
        write!(filled, "{before}<!-- table: {name} -->\n\n{}\n\n{END}", table(name).trim())
            .expect("writing to a string cannot fail");
        rest = after;
    }
    filled + rest
}

pub struct Chart {
    pub title: String,
    pub panels: Vec<Panel>,
}

/// A scenario, with its own scale.
pub struct Panel {
    pub title: String,
    pub bars: Vec<Bar>,
    /// Further remarks, one per line.
    pub notes: Vec<String>,
}

pub struct Bar {
    pub label: String,
    pub length: f64,
    pub text: String,
    pub kind: Kind,
}

#[derive(Clone, Copy)]
pub enum Kind {
    Own,
    Peer,
    /// A reference that is not a keyed lock, but shows what one might cost.
    Reference,
}

impl Kind {
    fn colour(self) -> &'static str {
        match self {
            Kind::Own => "#e8833a",
            Kind::Peer => "#5b8dd0",
            Kind::Reference => "#9aa3ad",
        }
    }
}

impl Chart {
    pub fn svg(&self) -> String {
        const WIDTH: f64 = 860.0;
        const LABELS: f64 = 170.0;
        const BARS: f64 = 440.0;
        const ROW: f64 = 19.0;
        const MARGIN: f64 = 16.0;

        let mut body = String::new();
        let mut y = MARGIN + 8.0;
        // The page may be white or black. This grey is readable on both.
        let mut text = |x: f64, y: f64, style: &str, text: &str| {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            writeln!(body, r#"<text x="{x}" y="{y:.1}"{style}>{text}</text>"#)
                .expect("writing to a string cannot fail");
        };
        text(MARGIN, y, r#" font-size="16" font-weight="bold""#, &self.title);
        let mut rects = String::new();
        for Panel { title, bars, notes } in &self.panels {
            y += 1.8 * ROW;
            text(MARGIN, y, r#" font-weight="bold""#, title);
            y += 0.4 * ROW;
            let longest = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
            for Bar { label, length, text: value, kind } in bars {
                let width = if longest > 0.0 { (BARS * length / longest).max(1.0) } else { 1.0 };
                let (height, baseline) = (ROW - 5.0, y + ROW - 8.5);
                let colour = kind.colour();
                text(LABELS - 8.0, baseline, r#" text-anchor="end""#, label);
                writeln!(
                    rects,
                    r#"<rect x="{LABELS}" y="{y:.1}" width="{width:.1}" height="{height}" fill="{colour}"/>"#
                )
                .expect("writing to a string cannot fail");
                text(LABELS + width + 6.0, baseline, "", value);
                y += ROW;
            }
            for note in notes {
                text(MARGIN, y + 10.0, r#" font-size="11" font-style="italic""#, note);
                y += 0.75 * ROW;
            }
        }
        let height = y + MARGIN;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\" \
             fill=\"#77818c\">\n{body}{rects}</svg>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_what_stands_there() {
        let page = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y --><!-- end -->\n";
        let filled = fill_tables(page, |name| format!("new {name}\n"));
        assert_eq!(
            filled,
            "a\n<!-- table: x -->\n\nnew x\n\n<!-- end -->\nb\n<!-- table: y -->\n\nnew y\n\n<!-- end -->\n"
        );
        assert_eq!(fill_tables(&filled, |name| format!("new {name}\n")), filled);
    }
}
