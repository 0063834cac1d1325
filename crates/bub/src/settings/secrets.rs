//! Credentials: how they are shown, which ones there are, and which variables children must not see.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use bub_kernel::secret::{MASK, SecretMask};
use serde_json::Value;

use super::{
    Settings,
    table::{self, Setting},
};

/// Credentials of at least this many characters show their end, to tell one from another.
const MIN_SHOWN_CHARS: usize = 12;

/// How many characters of a credential are shown at most.
const SHOWN_CHARS: usize = 4;

/// A credential. `Debug` and `Display` show at most its last 4 characters.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a credential.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The credential itself, to be sent and never to be shown.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is text from a sample file (`your_key_here`, `sk-xxx`, `<key>`) and no credential.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        is_placeholder(&self.0)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shorten(&self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

/// The credentials that bub uses.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    values: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl Secrets {
    /// Hides them in texts.
    #[must_use]
    pub fn mask(&self) -> SecretMask {
        SecretMask::new(&self.values)
    }

    /// The names of the variables that hold them, sorted.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(String::as_str)
    }

    fn add(&mut self, value: &str) {
        if !value.is_empty() && !is_placeholder(value) {
            self.values.insert(value.to_owned());
            // `Bearer …`: the word in front is no secret, and what follows is one by itself.
            if let Some((_, token)) = value.split_once(' ') {
                self.values.insert(token.trim().to_owned());
            }
        }
    }

    /// Adds what is in `value` under names that credentials have, and passwords inside URLs;
    /// tells whether there was any.
    fn add_from(&mut self, name: &str, value: &Value) -> bool {
        match value {
            Value::String(text) if is_secret_name(name) => {
                self.add(text);
                true
            }
            Value::String(text) => match url_password(text) {
                Some(password) => {
                    self.add(password);
                    true
                }
                None => false,
            },
            // Maps under such a name (`api_key: {openai: …}`) hold nothing else.
            Value::Object(fields) => fields.iter().fold(false, |any, (key, it)| {
                let key = if is_secret_name(name) { name } else { key };
                self.add_from(key, it) || any
            }),
            Value::Array(items) => items.iter().filter(|it| self.add_from(name, it)).count() > 0,
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// How the environment of a child process differs from bub's own.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChildVariables {
    /// What `.env` sets and the environment does not.
    pub add: BTreeMap<String, String>,
    /// Names that a child must not have.
    pub hide: Vec<String>,
}

impl Settings {
    /// All credentials in use: those of bub's own settings and variables, of the configuration file's
    /// other sections, of the providers that are configured or in `also`, and of logins.
    #[must_use]
    pub fn secrets<'a>(&self, also: impl IntoIterator<Item = &'a str>) -> Secrets {
        let mut secrets = Secrets::default();
        let layers = &self.layers;
        for (name, value) in &layers.file.to_json() {
            secrets.add_from(name, value);
        }
        for setting in table::SETTINGS {
            for found in layers.candidates(setting).into_iter().flatten() {
                if secrets.add_from(setting_name(setting), &found.value)
                    && let Some(variable) = found.origin.variable()
                {
                    secrets.variables.insert(variable.to_owned());
                }
            }
        }
        for name in layers.variable_names().filter(|it| it.starts_with("BUB_") && is_secret_name(it)) {
            secrets.variables.insert(name.to_owned());
            if table::SETTINGS.iter().all(|it| it.variable != name)
                && let Some((value, _)) = layers.variable(name)
            {
                secrets.add(value);
            }
        }
        let providers = self.providers_in_use().into_iter().chain(also.into_iter().map(str::to_owned));
        for provider in providers {
            if let Some(key) = self.endpoint(&provider).api_key {
                secrets.add(key.secret.expose());
                secrets.variables.extend(key.origin.variable().map(str::to_owned));
            }
        }
        self.login_secrets().iter().for_each(|it| secrets.add(it));
        secrets
    }

    /// What children get beside bub's own environment, and what they must not have. `secrets` are
    /// those of [`Settings::secrets`].
    #[must_use]
    pub fn child_variables(&self, secrets: &Secrets) -> ChildVariables {
        let hide: Vec<_> =
            if self.shell.pass_credentials { Vec::new() } else { secrets.variables.iter().cloned().collect() };
        let add = self
            .layers
            .dotenv
            .variables
            .iter()
            .filter(|(name, _)| !self.layers.environment.contains_key(*name) && !hide.contains(name))
            .map(|(name, it)| (name.clone(), it.value.clone()))
            .collect();
        ChildVariables { add, hide }
    }
}

/// The end of a credential, if it is long enough to show any of it.
pub(crate) fn shorten(secret: &str) -> String {
    let n_chars = secret.chars().count();
    if n_chars < MIN_SHOWN_CHARS {
        return MASK.to_owned();
    }
    MASK.chars().chain(secret.chars().skip(n_chars - SHOWN_CHARS)).collect()
}

/// `value` for people: what is under names that credentials have is shortened, passwords in URLs are hidden.
pub(crate) fn shorten_inside(name: &str, value: &mut Value) {
    match value {
        Value::String(text) if is_secret_name(name) => {
            if !text.is_empty() {
                *text = shorten(text);
            }
        }
        Value::String(text) => {
            if let Some(password) = url_password(text) {
                *text = text.replacen(&format!(":{password}@"), &format!(":{MASK}@"), 1);
            }
        }
        Value::Object(fields) => {
            for (key, it) in fields.iter_mut() {
                shorten_inside(if is_secret_name(name) { name } else { key }, it);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| shorten_inside(name, it)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a value holds a credential.
pub(crate) fn holds_secret(name: &str, value: &Value) -> bool {
    let mut found = Secrets::default();
    found.add_from(name, value) && !found.values.is_empty()
}

/// The last part of a setting's key.
pub(crate) fn setting_name(setting: &Setting) -> &'static str {
    setting.key.rsplit('.').next().unwrap_or(setting.key)
}

/// Whether something of that name is a credential.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name: String = name.to_lowercase().chars().filter(|it| *it != '-' && *it != '_').collect();
    const ENDS: [&str; 8] =
        ["apikey", "token", "secret", "password", "passwd", "authorization", "accesskey", "privatekey"];
    ENDS.iter().any(|it| name.ends_with(it)) || name == "cookie"
}

/// The password of `scheme://user:password@host`.
fn url_password(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("://")?;
    let authority = after.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some(password).filter(|it| !it.is_empty())
}

/// Whether a text stands in a sample file where a credential should be. Words that people give to
/// servers without authentication (`dummy`, `none`, `EMPTY`, `ollama`) are not: a real key must
/// not be sent in their place.
fn is_placeholder(text: &str) -> bool {
    let text = text.trim().trim_matches(['"', '\'']).to_lowercase();
    let words: Vec<&str> = text.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty()).collect();
    let plain = words.concat();
    let enclosed = [("<", ">"), ("${", "}"), ("{{", "}}"), ("[", "]")];
    let starts = ["your", "my", "insert", "replace", "enter", "put", "paste", "add", "set"];
    let nouns = ["key", "apikey", "token", "secret", "here", "this", "me"];
    enclosed.iter().any(|(open, close)| text.starts_with(open) && text.ends_with(close))
        || matches!(
            plain.as_str(),
            "changeme" | "changethis" | "placeholder" | "replaceme" | "fixme" | "todo" | "apikeyhere"
        )
        || starts.iter().any(|it| words.contains(it)) && nouns.iter().any(|it| words.contains(it))
        || plain.contains("yourapikey")
        || plain.contains("yourkey")
        || plain.contains("yourtoken")
        || is_filler(&text)
}

/// Whether nothing is left but the same filler character, behind a provider's prefix: `sk-or-v1-xxxx`, `sk-…`.
fn is_filler(text: &str) -> bool {
    const PREFIXES: [&str; 9] = ["sk-or-v1-", "sk-ant-", "sk-proj-", "sk-", "sk_", "gsk_", "hf_", "aiza", "xai-"];
    let body = PREFIXES.iter().find_map(|it| text.strip_prefix(it)).unwrap_or(text);
    let body = body.trim_matches(['-', '_']);
    let mut chars = body.chars().filter(|it| *it != '-' && *it != '_');
    let Some(first) = chars.next() else { return text.len() > body.len() };
    let is_same = chars.all(|it| it == first);
    is_same && (first == '…' || (matches!(first, 'x' | '*' | '.' | '_') && body.chars().count() >= 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shorten_keeps_at_most_four_characters_of_long_ones() {
        for (secret, expected) in [
            ("", "***"),
            ("short", "***"),
            ("elevenchars", "***"),
            ("twelve-chars", "***hars"),
            ("sk-äöüß-0123456", "***3456"),
        ] {
            assert_eq!(shorten(secret), expected, "{secret}");
            assert_eq!(format!("{:?} {0}", Secret::new(secret)), format!("Secret({expected}) {expected}"));
        }
    }

    #[test]
    fn placeholders_are_told_from_credentials() {
        let placeholders = [
            "your_key_here",
            "YOUR_API_KEY",
            "your-openai-api-key",
            "<your key>",
            "<KEY>",
            "changeme",
            "change-me",
            "CHANGE_ME",
            "sk-xxx",
            "sk-xxxxxxxxxxxxxxxx",
            "sk-or-v1-xxxxxx",
            "sk-ant-XXXX",
            "sk-...",
            "sk-…",
            "***",
            "${OPENAI_API_KEY}",
            "insert-your-key",
            "replace_me",
            "\"your_key_here\"",
            "sk-your-key-here",
            "placeholder",
            "put your key here",
            "xxxx-xxxx-xxxx",
            "sk-",
            "yourapikeyhere",
        ];
        for it in placeholders {
            assert!(is_placeholder(it), "{it}");
        }
        let real = [
            "sk-1234",
            "test",
            "dummy",
            "none",
            "EMPTY",
            "ollama",
            "not-needed",
            "lm-studio",
            "no-key-required",
            "sk-proj-abcDEF123456",
            "sk-or-v1-0f3a",
            "x",
            "mykeyring42",
            "gsk_a8f7b6c5d4",
            "secret",
            "xx",
        ];
        for it in real {
            assert!(!is_placeholder(it), "{it}");
        }
    }

    #[test]
    fn names_of_credentials_are_known() {
        for it in
            ["api_key", "BUB_OPENAI_API_KEY", "X-Api-Key", "Authorization", "accessToken", "bot_token", "client_secret"]
        {
            assert!(is_secret_name(it), "{it}");
        }
        for it in ["max_tokens", "BUB_MAX_TOKENS", "model", "api_base", "key_words", "tokenizer"] {
            assert!(!is_secret_name(it), "{it}");
        }
    }

    #[test]
    fn shorten_inside_finds_headers_maps_and_urls() {
        let mut value = json!({
            "headers": {"Authorization": "Bearer 0123456789", "X-Title": "t"},
            "api_key": {"openai": "sk-0123456789", "none": ""},
            "proxy": "http://me:pass@host/x",
            "max_tokens": 5,
        });
        shorten_inside("client_args", &mut value);
        assert_eq!(
            value,
            json!({
                "headers": {"Authorization": "***6789", "X-Title": "t"},
                "api_key": {"openai": "***6789", "none": ""},
                "proxy": "http://me:***@host/x",
                "max_tokens": 5,
            })
        );
    }
}
