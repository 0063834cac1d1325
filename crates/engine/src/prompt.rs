//! What the model is told before the conversation, and what stands in front of a message.

use bub_kernel::{
    clock::Clock,
    message::Part,
    turn::{Inbound, Prompt},
};

/// The most characters of a system prompt. Blocks have limits of their own; this one guards against
/// plugins that forget theirs.
const MAX_SYSTEM_PROMPT_CHARS: usize = 400_000;

/// Joins the blocks of a system prompt with blank lines; empty ones are left out.
pub(crate) fn join_blocks(blocks: &[String]) -> Option<String> {
    let blocks: Vec<_> = blocks.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).collect();
    if blocks.is_empty() {
        return None;
    }
    Some(bub_kernel::text::elide(&blocks.join("\n\n"), MAX_SYSTEM_PROMPT_CHARS).into_owned())
}

/// The prompt for a message: its facts and the date in front of what was said.
pub(crate) fn with_header(inbound: &Inbound, clock: &dyn Clock) -> Prompt {
    let facts: Vec<_> = inbound
        .context
        .iter()
        .filter(|(key, _)| !key.starts_with('_'))
        .map(|(key, value)| format!("{key}={value}"))
        .chain([format!("channel=${}", inbound.channel), format!("chat_id={}", inbound.chat)])
        .collect();
    let date = clock.now().to_zoned_datetime(clock.zone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let header = format!("{}\n---Date: {date}---\n", facts.join("|"));
    match &inbound.prompt {
        Prompt::Text(text) => Prompt::Text(header + text),
        Prompt::Parts(parts) => {
            let mut parts = parts.clone();
            match parts.iter_mut().find_map(|it| if let Part::Text(text) = it { Some(text) } else { None }) {
                Some(text) => text.insert_str(0, &header),
                None => parts.insert(0, Part::Text(header)),
            }
            Prompt::Parts(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bub_kernel::clock::FixedClock;

    #[test]
    fn messages_carry_their_facts_and_the_date() {
        let inbound = |prompt| Inbound {
            context: vec![("sender_id".into(), "human".into()), ("_private".into(), "x".into())],
            ..Inbound::new("cli", "local", prompt)
        };
        let header = "sender_id=human|channel=$cli|chat_id=local\n---Date: 2026-01-02T03:04:05+00:00---\n";
        let check = |prompt, expected| assert_eq!(with_header(&inbound(prompt), &FixedClock::default()), expected);
        check(Prompt::Text("hi".into()), Prompt::Text(format!("{header}hi")));
        check(
            Prompt::Parts(vec![Part::Reasoning("r".into()), Part::Text("hi".into())]),
            Prompt::Parts(vec![Part::Reasoning("r".into()), Part::Text(format!("{header}hi"))]),
        );
        check(Prompt::Parts(vec![]), Prompt::Parts(vec![Part::Text(header.into())]));
    }

    #[test]
    fn blocks_are_joined_by_blank_lines() {
        assert_eq!(join_blocks(&["a ".into(), "".into(), "\nb".into()]).as_deref(), Some("a\n\nb"));
        assert_eq!(join_blocks(&[" ".into()]), None);
    }
}
