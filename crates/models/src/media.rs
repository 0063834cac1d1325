//! Media that a model does not take: what another one was shown earlier must not lock the session.

use bub_kernel::{
    message::{Message, Part, Role},
    model::{ModelError, ModelRequest},
};

/// Words by which a refusal is known as one of media.
const WORDS: [&str; 7] = ["image", "picture", "vision", "multimodal", "audio", "video", "mmproj"];

/// Whether an error says that it is media which are refused.
pub(crate) fn is_refusal(error: &ModelError) -> bool {
    let text = match error {
        ModelError::Rejected { message, .. } | ModelError::Failed { message, .. } => message,
        ModelError::Unsupported(message) => message,
        _ => return false,
    };
    let text = text.to_lowercase();
    WORDS.iter().any(|it| text.contains(it))
}

/// The request with a note in the place of all media but those of the person's last message, which are
/// what is asked about; none when there are no others.
pub(crate) fn without_earlier(request: &ModelRequest) -> Option<ModelRequest> {
    let last = request.messages.iter().rposition(|it| it.role == Role::User);
    let is_earlier = |idx: usize, it: &Message| {
        let is_shown = matches!(it.role, Role::User | Role::Tool);
        is_shown && Some(idx) != last && it.parts.iter().any(|it| matches!(it, Part::Media(_)))
    };
    if !request.messages.iter().enumerate().any(|(idx, it)| is_earlier(idx, it)) {
        return None;
    }
    let noted = |part: &Part| match part {
        Part::Media(it) => Part::Text(format!("[{} left out: the model's provider refused it]", it.kind.as_str())),
        other => other.clone(),
    };
    let messages = request.messages.iter().enumerate().map(|(idx, it)| {
        if !is_earlier(idx, it) {
            return it.clone();
        }
        let Message { role, tool_calls, tool_call, is_error, parts } = it;
        let parts = parts.iter().map(noted).collect();
        Message {
            role: *role,
            parts,
            tool_calls: tool_calls.clone(),
            tool_call: tool_call.clone(),
            is_error: *is_error,
        }
    });
    let ModelRequest { run, model, system, messages: _, tools, options } = request;
    Some(ModelRequest {
        run: run.clone(),
        model: model.clone(),
        system: system.clone(),
        messages: messages.collect(),
        tools: tools.clone(),
        options: options.clone(),
    })
}
