//! What a provider's words say of limits: the conversation is too long, or the answer that was asked for.

/// Which limit was passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Limit {
    /// The conversation does not fit; a shorter one would.
    Conversation,
    /// More was asked for than an answer may have; a shorter conversation changes nothing.
    Answer,
}

/// The names of the option that limits an answer, as providers have them.
const ANSWER_OPTIONS: [&str; 5] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxoutputtokens", "max_new_tokens"];

/// What is said soon after such a name when its value is wrong.
const WRONG_VALUE: [&str; 12] = [
    "too large",
    "too high",
    "must be less than",
    "must be at most",
    "must be <",
    "must not exceed",
    "cannot exceed",
    "valid range",
    "supported range",
    "range of",
    "limit exceeded",
    "maximum allowed number of output tokens",
];

/// How soon, in characters.
const SOON: usize = 80;

/// Signs of a conversation that is too long: words, and within how many characters others follow.
const OVERFLOWS: [(&str, usize, &[&str]); 14] = [
    ("context", 20, &["length", "window", "size", "limit"]),
    ("maximum", 20, &["context"]),
    ("exceeds the maximum", 1, &["number of tokens"]),
    ("longer than the maximum", 1, &["model length"]),
    ("maximum prompt", 1, &["length"]),
    ("token", 10, &["limit"]),
    ("prompt token count", 30, &["exceeds the limit"]),
    ("prompt", 10, &["too long"]),
    ("prompt", 1, &["exceeds max"]),
    ("input", 10, &["too long"]),
    ("input length", 1, &["should be"]),
    ("too many", 1, &["tokens"]),
    ("payload size", 1, &["exceeds the limit"]),
    ("`inputs` tokens", 5, &["`max_new_tokens` must be"]),
];

/// What a message and its code say of a limit, if they do.
pub(super) fn passed(message: &str, code: &str) -> Option<Limit> {
    let message = message.to_lowercase();
    if is_value_wrong(&message) || is_answer_alone_too_long(&message) {
        return Some(Limit::Answer);
    }
    let is_over = |words: &str| {
        OVERFLOWS.iter().any(|(first, gap, then)| near(words, first, *gap, then)) || is_over_token_maximum(words)
    };
    let says_so = is_over(&message) || is_over(code) || code.contains("max_prompt_tokens");
    says_so.then_some(Limit::Conversation)
}

/// Whether the words name the option that limits an answer, and soon say what is wrong with its value.
fn is_value_wrong(words: &str) -> bool {
    ANSWER_OPTIONS.iter().any(|name| {
        words.match_indices(name).any(|(at, _)| {
            // A sum with the input's tokens speaks of both.
            let is_sum = words.get(..at).unwrap_or_default().trim_end_matches(['`', '\'', '"']).ends_with("+ ");
            let rest = words.get(at + name.len()..).unwrap_or_default();
            let is_soon = |it: &str| rest.find(it).is_some_and(|at| chars(rest, at) <= SOON);
            !is_sum && WRONG_VALUE.iter().any(|it| is_soon(it))
        }) || near(words, "range of", 1, &[name])
    })
}

/// Whether the answer that was asked for fills the window by itself: `maximum context length is 8192
/// tokens … (600 in the messages, 16384 in the completion)`.
fn is_answer_alone_too_long(words: &str) -> bool {
    let window = ["context length is", "context limit:", "must be <="].iter().find_map(|it| number_after(words, it));
    let answer = ["in the completion", "in the output", "output tokens", "`max_new_tokens`"]
        .iter()
        .find_map(|it| number_before(words, it));
    window.zip(answer).is_some_and(|(window, answer)| answer >= window)
}

fn number_after(words: &str, mark: &str) -> Option<u64> {
    let rest = words.split_once(mark)?.1.trim_start();
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

fn number_before(words: &str, mark: &str) -> Option<u64> {
    words.match_indices(mark).find_map(|(at, _)| {
        let before = words.get(..at)?.trim_end();
        let start = before.rfind(|it: char| !it.is_ascii_digit()).map_or(0, |at| at + 1);
        before.get(start..)?.parse().ok()
    })
}

/// Whether one of `then` begins at most `gap` characters after `first`, on the same line.
fn near(words: &str, first: &str, gap: usize, then: &[&str]) -> bool {
    words.match_indices(first).any(|(at, _)| {
        let rest = words.get(at + first.len()..).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        then.iter().any(|word| line.find(word).is_some_and(|it| chars(line, it) <= gap))
    })
}

/// How many characters the first `bytes` bytes of `text` are.
fn chars(text: &str, bytes: usize) -> usize {
    text.get(..bytes).unwrap_or_default().chars().count()
}

/// `… 210000 tokens > 200000 maximum`.
fn is_over_token_maximum(words: &str) -> bool {
    ["token > ", "tokens > "].iter().any(|first| {
        words.match_indices(first).any(|(at, _)| {
            let rest = words.get(at + first.len()..).unwrap_or_default();
            let after = rest.trim_start_matches(|it: char| it.is_ascii_digit());
            after.len() < rest.len() && after.starts_with(" maximum")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_every_service_are_told_apart() {
        let check = |expected: Option<Limit>, all: &[&str]| {
            for words in all {
                assert_eq!(passed(words, ""), expected, "{words}");
            }
        };
        check(
            Some(Limit::Conversation),
            &[
                "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (65000 in the messages, 5000 in the completion).",
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "prompt is too long: 210000 tokens > 200000 maximum",
                "input length and `max_tokens` exceed context limit: 190000 + 16384 > 200000, decrease input length or `max_tokens` and try again",
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                "Input is too long for requested model.",
                "Invalid request: Your request exceeded model token limit: 262144",
                "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
                "prompt token count of 128500 exceeds the limit of 128000",
                "Prompt exceeds max length",
                "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
                "Range of input length should be [1, 129024]",
                "too many tokens: total number of tokens in the prompt cannot exceed 4096",
                "the request exceeds the available context size, try increasing it",
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                "prompt too long; exceeded max context length by 4 tokens",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 512 `max_new_tokens`",
                "Request payload size exceeds the limit: 20971520 bytes.",
                "invalid params, context window exceeds limit (2013)",
            ],
        );
        check(
            Some(Limit::Answer),
            &[
                "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 8192 tokens and your request has 500 input tokens",
                "max_tokens is too large: 16384. This model supports at most 4096 completion tokens, whereas you provided 16384.",
                "max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
                "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
                "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
                "Unable to submit request because it has a maxOutputTokens value of 16384 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
                "Range of max_tokens should be [1, 8192]",
                "max_tokens limit exceeded: at most 4096",
                "This model's maximum context length is 8192 tokens. However, you requested 16984 tokens (600 in the messages, 16384 in the completion). Please reduce the length of the messages or completion.",
                "This endpoint's maximum context length is 8192 tokens. However, you requested about 16984 tokens (600 of text input, 16384 in the output). Please reduce the length of either one.",
                "This model's maximum context length is 4096 tokens. However, you requested 16384 output tokens and your prompt contains at least 500 input tokens.",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 500 `inputs` tokens and 16384 `max_new_tokens`",
            ],
        );
        check(
            None,
            &[
                "",
                "no such field",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                "Invalid value for 'temperature': must be less than 2",
                "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000",
                "messages.1.content.0.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
            ],
        );
        assert_eq!(passed("too long", "context_length_exceeded"), Some(Limit::Conversation));
        assert_eq!(passed("no", "model_max_prompt_tokens_exceeded"), Some(Limit::Conversation));
    }
}
