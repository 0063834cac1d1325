//! The `.env` file: found upward from the current directory, read without touching the process's environment.
//!
//! The reader is our own because the usual crate expands `$NAME` from the process's environment,
//! which is passed in here, and drops the rest of a file after one odd quote. A project's `.env` is
//! mostly not about bub, so a line that can't be read is a warning and never an error.
//!
//! Grammar, as in the reference: `NAME=value`, `export NAME=value`, `'single quotes'` (only `\'` and
//! `\\` are escapes, nothing is expanded), `"double quotes"` (with `\n` and the like), both over
//! several lines; otherwise the rest of the line up to ` #`. `${NAME}` and `${NAME:-default}` are
//! expanded from the environment, then from the lines above. The last of equal names counts.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use super::file::read_regular_file;

/// The longest value after expansion, in bytes.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// One `.env` file.
#[derive(Debug, Default)]
pub(crate) struct DotEnv {
    pub(crate) path: PathBuf,
    /// Values by name.
    pub(crate) variables: BTreeMap<String, Variable>,
    /// What could not be read.
    pub(crate) warnings: Vec<String>,
}

/// One variable of the file.
#[derive(Debug, PartialEq)]
pub(crate) struct Variable {
    pub(crate) value: String,
    /// Counted from 1.
    pub(crate) line: u64,
}

impl DotEnv {
    /// Finds and reads the nearest `.env` at or above `cwd`.
    pub(crate) fn find(cwd: &Path, environment: &BTreeMap<String, String>) -> Option<Self> {
        // Folders of that name (virtual environments) are passed over.
        let path = cwd.ancestors().map(|it| it.join(".env")).find(|it| it.is_file())?;
        let bytes = match read_regular_file(&path) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return None,
            Err(err) => {
                let warnings = vec![format!("cannot read {}: {err}", path.display())];
                return Some(Self { path, warnings, ..Self::default() });
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let (variables, problems) = parse(&text, environment);
        let mut warnings: Vec<_> =
            problems.iter().map(|(line, problem)| format!("{}:{line}: {problem}", path.display())).collect();
        if matches!(text, std::borrow::Cow::Owned(_)) {
            warnings.insert(0, format!("{}: not UTF-8 throughout", path.display()));
        }
        Some(Self { path, variables, warnings })
    }
}

/// A line that can't be read, and why.
type Problem = (u64, String);

fn parse(text: &str, environment: &BTreeMap<String, String>) -> (BTreeMap<String, Variable>, Vec<Problem>) {
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    let mut variables = BTreeMap::<String, Variable>::new();
    let mut problems = Vec::new();
    while reader.skip_to_entry() {
        let (start, line) = (reader.rest, reader.line);
        match reader.entry() {
            Ok(Some((name, value))) => {
                let known = |name: &str| {
                    environment.get(name).or_else(|| variables.get(name).map(|it| &it.value)).map(String::as_str)
                };
                let value = match value {
                    Raw::Literal(value) => value,
                    Raw::Expandable(value) => expand(&value, known),
                };
                if value.len() > MAX_VALUE_BYTES || value.contains('\0') {
                    let limit = format!("the value of {name} is longer than {MAX_VALUE_BYTES} bytes or has NUL bytes");
                    problems.push((line, limit));
                } else {
                    variables.insert(name, Variable { value, line });
                }
            }
            // A name alone sets nothing.
            Ok(None) => {}
            Err(problem) => {
                problems.push((line, problem.to_owned()));
                (reader.rest, reader.line) = (start, line);
                reader.take_line();
            }
        }
    }
    (variables, problems)
}

/// A value before `${…}` is expanded.
enum Raw {
    Literal(String),
    Expandable(String),
}

struct Reader<'a> {
    rest: &'a str,
    line: u64,
}

impl<'a> Reader<'a> {
    /// Goes to the next line that is neither blank nor a comment; `false` at the end.
    fn skip_to_entry(&mut self) -> bool {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest.starts_with('#') {
                return !self.rest.is_empty();
            }
            self.take_line();
        }
    }

    fn entry(&mut self) -> Result<Option<(String, Raw)>, &'static str> {
        if let Some(after) = self.rest.strip_prefix("export")
            && after.starts_with(is_blank)
        {
            self.rest = after.trim_start_matches(is_blank);
        }
        let name = match self.rest.strip_prefix('\'') {
            Some(_) => self.quoted('\'')?,
            None => self.take_while(|it| it != '=' && it != '#' && !it.is_whitespace()).to_owned(),
        };
        self.take_while(is_blank);
        let Some(after) = self.rest.strip_prefix('=') else {
            return self.end_of_line("expected `NAME=value`").map(|()| None);
        };
        if name.is_empty() || name.contains('\0') {
            return Err("expected a name in front of `=`");
        }
        self.rest = after;
        self.take_while(is_blank);
        let value = match self.rest.chars().next() {
            Some('\'') => Raw::Literal(self.quoted('\'')?),
            Some('"') => Raw::Expandable(self.quoted('"')?),
            _ => return Ok(Some((name, Raw::Expandable(uncommented(self.take_line()).to_owned())))),
        };
        self.end_of_line("expected the end of the line after the closing quote")?;
        Ok(Some((name, value)))
    }

    /// Reads a quoted text, the quotes taken off and its escapes resolved.
    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, it)) = chars.next() {
            if it == quote {
                self.take(at + it.len_utf8());
                return Ok(text);
            }
            if it != '\\' {
                text.push(it);
                continue;
            }
            let Some((_, escaped)) = chars.next() else { break };
            match escaped {
                '\\' | '\'' => text.push(escaped),
                other if quote == '"' => match other {
                    '"' => text.push('"'),
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    'f' => text.push('\u{c}'),
                    'v' => text.push('\u{b}'),
                    'b' => text.push('\u{8}'),
                    'a' => text.push('\u{7}'),
                    _ => text.extend(['\\', other]),
                },
                other => text.extend(['\\', other]),
            }
        }
        Err("expected a closing quote")
    }

    /// Passes over blanks, a comment and the end of the line.
    fn end_of_line(&mut self, expected: &'static str) -> Result<(), &'static str> {
        let line = self.take_line().trim_start_matches(is_blank);
        if line.is_empty() || line.starts_with('#') { Ok(()) } else { Err(expected) }
    }

    fn take_line(&mut self) -> &'a str {
        let line = self.take_while(|it| it != '\n' && it != '\r');
        if let Some(after) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix(['\n', '\r'])) {
            self.rest = after;
            self.line += 1;
        }
        line
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|it| !is_part(it)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.line += taken.matches('\n').count() as u64;
        self.rest = rest;
        taken
    }
}

fn is_blank(it: char) -> bool {
    it.is_whitespace() && it != '\n' && it != '\r'
}

/// An unquoted value without its comment.
fn uncommented(line: &str) -> &str {
    let comment = line.match_indices('#').map(|(at, _)| at).find(|at| {
        let before = line.get(..*at).unwrap_or_default();
        before.is_empty() || before.ends_with(is_blank)
    });
    line.get(..comment.unwrap_or(line.len())).unwrap_or(line).trim_end()
}

/// Replaces `${NAME}` and `${NAME:-default}`; unknown names are empty.
fn expand<'a>(text: &str, known: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inner, tail)) = after.split_once('}') else { break };
        out.push_str(before);
        let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
        out.push_str(known(name).unwrap_or(default));
        rest = tail;
        // Values that repeat each other grow without bound; the caller refuses what is this long.
        if out.len() > MAX_VALUE_BYTES {
            return out;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check(text: &str, expected: &Expect) {
        let environment = BTreeMap::from([("USER".to_owned(), "ada".to_owned())]);
        let (variables, problems) = parse(text, &environment);
        let mut shown = String::new();
        for (name, it) in variables {
            shown.push_str(&format!("{}: {name}={:?}\n", it.line, it.value));
        }
        for (line, problem) in problems {
            shown.push_str(&format!("{line}: {problem}\n"));
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn parse_reads_the_usual_forms() {
        check(
            "\u{feff}# comment\nA=1\r\n  export B = two words # comment\nC=it's#not\nD=\nE\nF='a\\'b ${A} \\n' # c\nG=\"x\\n${A}-${USER}-${NONE:-d}-${NONE}\"\nA=2\nH=\"two\nlines\"\n'I J'=1\nK=a\\n",
            &expect![[r#"
                9: A="2"
                3: B="two words"
                4: C="it's#not"
                5: D=""
                7: F="a'b ${A} \\n"
                8: G="x\n1-ada-d-"
                10: H="two\nlines"
                12: I J="1"
                13: K="a\\n"
            "#]],
        );
    }

    #[test]
    fn parse_goes_on_after_a_broken_line() {
        check(
            "A='open\nB=2\n=3\nC=\"x\" y\nfoo bar\nD=4",
            &expect![[r#"
                2: B="2"
                6: D="4"
                1: expected a closing quote
                3: expected a name in front of `=`
                4: expected the end of the line after the closing quote
                5: expected `NAME=value`
            "#]],
        );
    }

    #[test]
    fn parse_refuses_values_that_grow_without_bound() {
        let mut text = format!("V0={}\n", "x".repeat(1024));
        for idx in 1..12 {
            text.push_str(&format!("V{idx}={}\n", format!("${{V{}}}", idx - 1).repeat(10)));
        }
        let (variables, problems) = parse(&text, &BTreeMap::new());
        assert!(variables.values().all(|it| it.value.len() <= MAX_VALUE_BYTES));
        assert!(!problems.is_empty());
    }

    proptest! {
        #[test]
        fn parse_takes_any_text(text in r#"([A-C]|=|'|"|\\|#|\$\{|\}|export | |\n|\r|ü|\u{0})*"#) {
            let (variables, problems) = parse(&text, &BTreeMap::new());
            let lines = text.lines().count() as u64 + text.matches('\r').count() as u64;
            prop_assert!(variables.values().all(|it| it.line <= lines));
            prop_assert!(problems.iter().all(|it| it.0 <= lines));
        }

        #[test]
        fn parse_gives_quoted_values_back(value in r#"[ -~äö\n]{0,30}"#) {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            let (variables, problems) = parse(&format!("A='{quoted}'"), &BTreeMap::new());
            prop_assert_eq!(&variables["A"].value, &value);
            prop_assert!(problems.is_empty());
        }
    }
}
