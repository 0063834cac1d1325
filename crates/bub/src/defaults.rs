//! The built-in hooks: what every session is told, unless plugins say more.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use bub_kernel::{
    hooks::Hooks,
    text,
    turn::{Inbound, TurnState},
};
use tokio::sync::OnceCell;

/// The most characters of a workspace's `AGENTS.md` that enter the system prompt.
const MAX_INSTRUCTION_CHARS: usize = 64_000;
/// The most bytes of it that are read.
const MAX_INSTRUCTION_BYTES: u64 = 1 << 20;

/// What the model is told in every session. The tags are the reference's, the words are ours.
const PROMPT: &str = "\
<general_instruct>
You work on a person's behalf, in their workspace, with real tools. Find out before you answer: read \
the files, run the commands, look things up. When a tool fails, read its error, change something, and \
try again; when you are stuck, say what you tried. Finish the task, check the result, then report it \
briefly.
</general_instruct>
<response_instruct>
Each message begins with facts about where it came from. In the channel `$cli` the person reads your \
plain answer. In any other channel plain answers are not delivered: to reach people there, use the \
skill of the channel's name, and do so when a question is open, when something important went wrong, \
or when a conversation is going on.
</response_instruct>";

/// What the context is, in every session.
const CONTEXT: &str = "\
Everything is recorded on a tape, and your context is what the tape holds since its last anchor.";

/// What can be done about the context, said only where the tool may be used: a prompt must name no
/// tool that is not on offer.
const CONTEXT_TOOLS: &[(&str, &str)] = &[
    ("tape.info", "`tape_info` tells how full the context is."),
    (
        "tape.handoff",
        "When it grows long or a phase of the work is done, call `tape_handoff` with a summary of what is still \
         needed: the context starts anew from there.",
    ),
    ("tape.search", "Earlier entries stay on the tape, and `tape_search` finds them."),
];

/// The built-in hooks: the default system prompt, and the workspace's `AGENTS.md`.
#[derive(Debug)]
pub struct DefaultHooks {
    workspace: PathBuf,
}

/// A turn's copy of the workspace's instructions: read once, so that the prompt stays the same for all
/// steps of a turn, and only when a model is asked at all.
#[derive(Default)]
struct Instructions(OnceCell<Option<String>>);

impl DefaultHooks {
    /// Hooks for sessions in a workspace.
    #[must_use]
    pub fn new(workspace: PathBuf) -> Self {
        Self { workspace }
    }

    /// The trimmed text of `AGENTS.md`, if there is one that can be read.
    async fn instructions(&self) -> Option<String> {
        let path = self.workspace.join("AGENTS.md");
        tokio::task::spawn_blocking(move || read_instructions(&path)).await.ok().flatten()
    }
}

fn read_instructions(path: &Path) -> Option<String> {
    // Only a regular file is opened: a named pipe would wait for a writer.
    if !path.metadata().is_ok_and(|it| it.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    if let Err(err) = File::open(path).and_then(|it| it.take(MAX_INSTRUCTION_BYTES).read_to_end(&mut bytes)) {
        tracing::warn!(path = %path.display(), error = %err, "AGENTS.md was not read");
        return None;
    }
    let content = String::from_utf8_lossy(&bytes);
    let trimmed = content.trim_start_matches('\u{feff}').trim();
    (!trimmed.is_empty()).then(|| text::elide(trimmed, MAX_INSTRUCTION_CHARS).into_owned())
}

#[async_trait]
impl Hooks for DefaultHooks {
    fn name(&self) -> &str {
        "builtin"
    }

    fn implements(&self) -> &[&'static str] {
        &["load_state", "system_prompt"]
    }

    async fn load_state(&self, _: &Inbound, state: &mut TurnState) {
        state.set_slot(Instructions::default());
    }

    async fn system_prompt(&self, state: &TurnState) -> Option<String> {
        let mut prompt = format!("{PROMPT}\n<context_contract>\n{CONTEXT}");
        for (_, sentence) in CONTEXT_TOOLS.iter().filter(|(tool, _)| state.allows_tool(tool)) {
            prompt.push(' ');
            prompt.push_str(sentence);
        }
        prompt.push_str("\n</context_contract>");
        let read_now;
        let instructions = match state.slot::<Instructions>() {
            Some(Instructions(cell)) => cell.get_or_init(|| self.instructions()).await,
            None => {
                read_now = self.instructions().await;
                &read_now
            }
        };
        if let Some(content) = instructions {
            prompt.push_str("\n\n<workspace_instruction>\n");
            prompt.push_str(content);
            prompt.push_str("\n</workspace_instruction>");
        }
        Some(prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bub_kernel::turn::Prompt;

    async fn prompt_with(agents: Option<&[u8]>) -> String {
        let dir = tempfile::tempdir().unwrap();
        if let Some(content) = agents {
            std::fs::write(dir.path().join("AGENTS.md"), content).unwrap();
        }
        let hooks = DefaultHooks::new(dir.path().to_owned());
        let inbound = Inbound::new("cli", "local", Prompt::Text("x".into()));
        let mut state = TurnState::default();
        hooks.load_state(&inbound, &mut state).await;
        hooks.system_prompt(&state).await.unwrap()
    }

    #[tokio::test]
    async fn r065_the_prompt_names_only_tools_that_may_be_used() {
        let hooks = DefaultHooks::new("/nowhere".into());
        let mut state = TurnState::default();
        state.allowed_tools = Some(vec!["fs.read".into()]);
        let prompt = hooks.system_prompt(&state).await.unwrap();
        assert!(!prompt.contains("tape_"), "{prompt}");
    }

    #[tokio::test]
    async fn the_workspaces_instructions_are_part_of_the_prompt() {
        let plain = prompt_with(None).await;
        assert!(plain.starts_with(PROMPT) && plain.ends_with("finds them.\n</context_contract>"), "{plain}");
        assert_eq!(prompt_with(Some(b" \n")).await, plain);
        let prompt = prompt_with(Some("\u{feff}\nUse tabs.\n\n".as_bytes())).await;
        assert!(prompt.ends_with("\n\n<workspace_instruction>\nUse tabs.\n</workspace_instruction>"), "{prompt}");
        let long = prompt_with(Some("x".repeat(100_000).as_bytes())).await;
        assert!(long.len() < 70_000 && long.contains("36,000 chars omitted"));
        assert!(prompt_with(Some(b"a\xffb")).await.contains("a\u{fffd}b"));
    }
}
