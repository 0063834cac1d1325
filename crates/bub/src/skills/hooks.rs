//! What the model is told of skills.

use async_trait::async_trait;
use bub_kernel::{
    hooks::{Hooks, ToolView},
    message::Part,
    tape::Tape,
    text,
    turn::{Prompt, TurnState},
};
use tokio::sync::OnceCell;

use super::{Catalog, Skill, Skills};

/// The most skills in the system prompt.
const MAX_LISTED: usize = 300;
/// The most characters of names and descriptions in the system prompt.
const MAX_LISTED_CHARS: usize = 64_000;
/// The most characters of the texts of named skills in the system prompt.
const MAX_NAMED_CHARS: usize = 100_000;
/// The most names of a prompt that are looked at.
const MAX_HINTS: usize = 200;

/// Tells the model which skills there are, and the texts of those that the person names as `$name`.
#[derive(Clone, Debug)]
pub struct SkillHooks {
    skills: Skills,
}

/// What one turn is told: made once, so that the prompt stays the same for all its steps.
struct Told {
    hints: Vec<String>,
    block: OnceCell<Option<String>>,
}

impl SkillHooks {
    /// Hooks over skills.
    #[must_use]
    pub fn new(skills: Skills) -> Self {
        Self { skills }
    }

    async fn block(&self, state: &TurnState, hints: &[String]) -> Option<String> {
        let catalog = self.skills.catalog().await;
        let allowed: Vec<&Skill> = allowed(&catalog, state);
        if allowed.is_empty() {
            return None;
        }
        let mut lines = Vec::new();
        let (mut listed_chars, mut named_chars, mut left_out) = (0, 0, 0);
        for skill in allowed {
            let is_named = hints.contains(&skill.name);
            let mut line = format!("- {}: {}", skill.name, skill.description);
            listed_chars += line.chars().count();
            if !is_named && (lines.len() >= MAX_LISTED || listed_chars > MAX_LISTED_CHARS) {
                left_out += 1;
                continue;
            }
            if is_named {
                match self.skills.text(skill.clone()).await {
                    Ok(it) => {
                        line.push_str(&format!("\n  Location: {}", it.location));
                        let body = text::elide(&it.body, MAX_NAMED_CHARS - named_chars);
                        named_chars = (named_chars + body.chars().count()).min(MAX_NAMED_CHARS);
                        if !body.is_empty() {
                            line.push('\n');
                            line.push_str(&body);
                        }
                    }
                    Err(reason) => {
                        tracing::warn!(skill = skill.name, reason, "skill was not read");
                        line.push_str(&format!("\n  (its text can't be read: {reason})"));
                    }
                }
            }
            lines.push(line);
        }
        if left_out > 0 {
            lines.push(format!("(and {left_out} more)"));
        }
        Some(format!("<available_skills>\n{}\n</available_skills>", lines.join("\n")))
    }
}

#[async_trait]
impl Hooks for SkillHooks {
    fn name(&self) -> &str {
        "skills"
    }

    fn implements(&self) -> &[&'static str] {
        &["begin_turn", "choose_tools"]
    }

    async fn begin_turn(&self, state: &mut TurnState, prompt: &Prompt, _: &Tape) {
        state.set_slot(Told { hints: hints(prompt), block: OnceCell::new() });
    }

    async fn choose_tools(&self, state: &TurnState, view: &mut ToolView) {
        let block = match state.slot::<Told>() {
            Some(told) => told.block.get_or_init(|| self.block(state, &told.hints)).await.clone(),
            None => self.block(state, &[]).await,
        };
        view.prompt.extend(block);
    }
}

/// The skills that a turn may use.
pub(crate) fn allowed<'a>(catalog: &'a Catalog, state: &TurnState) -> Vec<&'a Skill> {
    catalog.skills.iter().filter(|it| allows(state, &it.name)).collect()
}

/// Whether a turn may use the skill of that name, in any case.
pub(crate) fn allows(state: &TurnState, name: &str) -> bool {
    let wanted = name.trim().to_lowercase();
    state.allowed_skills.as_ref().is_none_or(|names| names.iter().any(|it| it.trim().to_lowercase() == wanted))
}

/// The names that a prompt mentions as `$name`, in lower case, without the punctuation of the sentence.
fn hints(prompt: &Prompt) -> Vec<String> {
    let texts: Vec<&str> = match prompt {
        Prompt::Text(text) => vec![text],
        Prompt::Parts(parts) => {
            parts.iter().filter_map(|it| if let Part::Text(text) = it { Some(text.as_str()) } else { None }).collect()
        }
    };
    let mut found: Vec<String> = Vec::new();
    for rest in texts.iter().flat_map(|it| it.split('$').skip(1)) {
        let is_of_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '.' | '-');
        let end = rest.find(|it| !is_of_name(it)).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default().trim_end_matches(['.', '-', '_']).to_lowercase();
        if !name.is_empty() && found.len() < MAX_HINTS && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_found_in_any_case_and_without_punctuation() {
        for (text, expected) in [
            ("use $gh please", vec!["gh"]),
            ("use $GH.", vec!["gh"]),
            ("$gh, $Skill-Creator! ($bub) $gh", vec!["gh", "skill-creator", "bub"]),
            ("channel=$telegram|chat_id=1", vec!["telegram"]),
            ("$gh... and $a_b-", vec!["gh", "a_b"]),
            ("costs $ 5, $$ and $", vec![]),
            ("ä$ä$gh", vec!["gh"]),
        ] {
            assert_eq!(hints(&Prompt::Text(text.into())), expected, "{text}");
        }
        let parts = Prompt::Parts(vec![Part::Text("$a".into()), Part::Text("$b".into())]);
        assert_eq!(hints(&parts), ["a", "b"]);
    }
}
