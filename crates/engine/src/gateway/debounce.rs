//! Making one message of several that come close together.
//!
//! Time is passed in, so that the rules can be tested without waiting.

use std::time::Duration;

use bub_kernel::{
    message::Part,
    turn::{Inbound, Prompt},
};
use tokio::time::Instant;

/// The most messages that are made into one; then they go on at once.
const MAX_GATHERED: usize = 100;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct DebounceSettings {
    /// After a message that is addressed to the agent.
    pub(super) debounce: Duration,
    /// After one that is not.
    pub(super) max_wait: Duration,
    /// How long a conversation goes on after a message that is addressed to the agent.
    pub(super) active_window: Duration,
}

/// The messages of one session that are being gathered.
#[derive(Debug)]
pub(super) struct Debounce {
    settings: DebounceSettings,
    gathered: Vec<Inbound>,
    due: Option<Instant>,
    last_active: Option<Instant>,
}

impl Debounce {
    pub(super) fn new(settings: DebounceSettings) -> Self {
        Self { settings, gathered: Vec::new(), due: None, last_active: None }
    }

    /// Takes in a message. One that is not addressed to the agent is ignored unless a conversation goes on.
    /// Returns what goes on at once: the gathered messages when they are too many.
    pub(super) fn take_in(&mut self, inbound: Inbound, now: Instant) -> Option<Inbound> {
        if inbound.is_active {
            self.last_active = Some(now);
            self.due = Some(now + self.settings.debounce);
        } else {
            let goes_on = self.last_active.is_some_and(|it| now.duration_since(it) <= self.settings.active_window);
            if !goes_on {
                self.last_active = None;
                return None;
            }
            self.due.get_or_insert(now + self.settings.max_wait);
        }
        self.gathered.push(inbound);
        if self.gathered.len() >= MAX_GATHERED { self.fire() } else { None }
    }

    /// When the gathered messages go on.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether nothing would be lost with this.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let goes_on = self.last_active.is_some_and(|it| now.duration_since(it) <= self.settings.active_window);
        self.gathered.is_empty() && !goes_on
    }

    /// The gathered messages as one, if there are any.
    pub(super) fn fire(&mut self) -> Option<Inbound> {
        self.due = None;
        merge(std::mem::take(&mut self.gathered))
    }
}

/// One message of several: texts in lines, media after them, everything else as the last one has it.
pub(super) fn merge(mut all: Vec<Inbound>) -> Option<Inbound> {
    let mut last = all.pop()?;
    if all.is_empty() {
        return Some(last);
    }
    let mut texts: Vec<String> = Vec::new();
    let mut media = Vec::new();
    for prompt in all.into_iter().map(|it| it.prompt).chain([last.prompt]) {
        match prompt {
            Prompt::Text(text) => texts.push(text),
            Prompt::Parts(parts) => {
                for part in parts {
                    match part {
                        Part::Text(text) => texts.push(text),
                        other => media.push(other),
                    }
                }
            }
        }
    }
    let text = texts.join("\n");
    last.prompt = if media.is_empty() {
        Prompt::Text(text)
    } else {
        let words = (!texts.is_empty()).then_some(Part::Text(text));
        Prompt::Parts(words.into_iter().chain(media).collect())
    };
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> DebounceSettings {
        let seconds = Duration::from_secs;
        DebounceSettings { debounce: seconds(1), max_wait: seconds(10), active_window: seconds(60) }
    }

    fn message(text: &str, is_active: bool) -> Inbound {
        Inbound { is_active, ..Inbound::new("group", "1", Prompt::Text(text.into())) }
    }

    /// Plays messages (seconds, text, whether active) and tells when what went on: `SECONDS TEXT`.
    fn check(messages: &[(f64, &str, bool)], expected: &[&str]) {
        let start = Instant::now();
        let mut debounce = Debounce::new(settings());
        let mut fired = Vec::new();
        let tell = |at: Instant, inbound: Inbound| {
            let seconds = at.duration_since(start).as_secs_f64();
            format!("{seconds} {}", inbound.prompt.as_text().unwrap().replace('\n', "|"))
        };
        for (seconds, text, is_active) in messages {
            let now = start + Duration::from_secs_f64(*seconds);
            if let Some(due) = debounce.due().filter(|it| *it <= now) {
                fired.extend(debounce.fire().map(|it| tell(due, it)));
            }
            fired.extend(debounce.take_in(message(text, *is_active), now).map(|it| tell(now, it)));
        }
        if let Some(due) = debounce.due() {
            fired.extend(debounce.fire().map(|it| tell(due, it)));
        }
        assert_eq!(fired, expected, "{messages:?}");
    }

    #[test]
    fn messages_that_come_close_together_are_one() {
        check(&[(0.0, "a", true)], &["1 a"]);
        check(&[(0.0, "a", true), (0.5, "b", true), (1.25, "c", true)], &["2.25 a|b|c"]);
        check(&[(0.0, "a", true), (1.5, "b", true)], &["1 a", "2.5 b"]);
    }

    #[test]
    fn what_others_say_counts_only_while_a_conversation_goes_on() {
        check(&[(0.0, "x", false)], &[]);
        check(&[(0.0, "a", true), (30.0, "x", false), (35.0, "y", false)], &["1 a", "40 x|y"]);
        check(&[(0.0, "a", true), (60.0, "x", false)], &["1 a", "70 x"]);
        check(&[(0.0, "a", true), (60.5, "x", false)], &["1 a"]);
        // Forgotten, so that the window does not open again without somebody who is addressed.
        check(&[(0.0, "a", true), (61.0, "x", false), (62.0, "y", false)], &["1 a"]);
    }

    #[test]
    fn a_message_to_the_agent_hurries_those_that_wait() {
        check(&[(0.0, "a", true), (2.0, "x", false), (4.0, "b", true)], &["1 a", "5 x|b"]);
        // And one that is not does not make those to the agent wait.
        check(&[(0.0, "a", true), (0.5, "x", false)], &["1 a|x"]);
    }

    #[test]
    fn too_many_messages_go_on_at_once() {
        let many: Vec<_> = (0..MAX_GATHERED).map(|_| (0.0, "a", true)).collect();
        check(&many, &[&format!("0 {}", vec!["a"; MAX_GATHERED].join("|"))]);
    }

    #[test]
    fn media_follow_the_words_and_the_last_message_is_the_template() {
        let picture = |name: &str| Part::Reasoning(name.to_owned());
        let first = Inbound::new("g", "1", Prompt::Parts(vec![Part::Text("see".into()), picture("1")]));
        let second = message("that", true);
        let third = Inbound {
            context: vec![("sender_id".into(), "3".into())],
            ..Inbound::new("g", "1", Prompt::Parts(vec![picture("2")]))
        };
        let one = merge(vec![first, second, third]).unwrap();
        assert_eq!(one.prompt, Prompt::Parts(vec![Part::Text("see\nthat".into()), picture("1"), picture("2")]));
        assert_eq!(one.context, [("sender_id".to_owned(), "3".to_owned())]);
        assert!(merge(Vec::new()).is_none());
    }
}
