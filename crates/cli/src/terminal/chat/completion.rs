//! What the tab key adds: names of commands at the beginning of a line.

use rustyline::{
    Context, Helper,
    completion::{Completer, Pair},
    highlight::Highlighter,
    hint::Hinter,
    validate::Validator,
};

/// Completes commands.
#[derive(Debug)]
pub(super) struct CommandCompleter {
    prefix: String,
    names: Vec<String>,
}

impl CommandCompleter {
    pub(super) fn new(prefix: String, mut names: Vec<String>) -> Self {
        names.sort();
        names.dedup();
        Self { prefix, names }
    }

    /// The commands that begin as the line does up to the cursor; none when that is not a command's name.
    fn matches(&self, line: &str, position: usize) -> Vec<String> {
        let Some(typed) = line.get(..position).and_then(|it| it.strip_prefix(&self.prefix)) else { return Vec::new() };
        let all = self.names.iter().filter(|it| it.starts_with(typed));
        all.map(|it| format!("{}{it}", self.prefix)).collect()
    }
}

impl Completer for CommandCompleter {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let found = self.matches(line, position);
        Ok((0, found.into_iter().map(|it| Pair { display: it.clone(), replacement: it }).collect()))
    }
}

impl Helper for CommandCompleter {}
impl Highlighter for CommandCompleter {}
impl Validator for CommandCompleter {}
impl Hinter for CommandCompleter {
    type Hint = String;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r149_commands_are_completed_at_the_beginning_of_a_line_only() {
        let names = ["tape.info", "tape.search", "fs.read", "tape.anchors"].map(str::to_owned).to_vec();
        let completer = CommandCompleter::new(",".into(), names);
        let check =
            |line: &str, expected: &[&str]| assert_eq!(completer.matches(line, line.len()), expected, "{line:?}");
        check(",tap", &[",tape.anchors", ",tape.info", ",tape.search"]);
        check(",tape.se", &[",tape.search"]);
        check("say ,tap", &[]);
        check(",fs.read path=READ", &[]);
        check("tap", &[]);
        check("", &[]);
        assert_eq!(completer.matches(",tape.info", 3), [",tape.anchors", ",tape.info", ",tape.search"]);
    }
}
