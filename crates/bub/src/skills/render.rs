//! Placeholders in a skill's text.

use bub_kernel::secret::SecretMask;
use serde_json::Value;

use crate::settings::Settings;

/// What placeholders stand for.
pub(crate) struct Templates {
    settings: Settings,
    mask: SecretMask,
}

impl Templates {
    /// Placeholders over settings; credentials among their values are not shown.
    pub(crate) fn new(settings: Settings, mask: SecretMask) -> Self {
        Self { settings, mask }
    }

    /// Fills in `${config.a.b}`, `$SKILL_DIR` and `$PYTHON`, the latter two also in braces. Everything else
    /// with a dollar stays as it is.
    pub(crate) fn fill(&self, body: &str, skill_dir: &str) -> String {
        let config = |key: &str| self.settings.config_value(key);
        let mut text = fill(body, skill_dir, &self.settings.python, &config);
        self.mask.mask(&mut text);
        text
    }
}

fn fill(body: &str, skill_dir: &str, python: &str, config: &dyn Fn(&str) -> Option<Value>) -> String {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let after = from.get(1..).unwrap_or_default();
        let (name, end) = match after.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, end)) => (name, end),
                None => ("", after),
            },
            None => {
                let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
                after.split_at(after.find(|it| !is_word(it)).unwrap_or(after.len()))
            }
        };
        let in_braces = after.starts_with('{');
        let value = match name {
            "SKILL_DIR" => Some(skill_dir.to_owned()),
            "PYTHON" => Some(python.to_owned()),
            _ => name
                .strip_prefix("config.")
                .filter(|key| in_braces && is_key(key))
                .map(|key| config(key).map(|it| shown(&it)).unwrap_or_default()),
        };
        match value {
            Some(value) => {
                text.push_str(&value);
                rest = end;
            }
            None => {
                text.push('$');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'.'))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(it) => it.to_string(),
        Value::Number(it) => it.to_string(),
        Value::Array(_) | Value::Object(_) => {
            serde_saphyr::to_string(value).map(|it| it.trim_end().to_owned()).unwrap_or_else(|_| value.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn placeholders_are_filled_in_and_other_dollars_stay() {
        let config = |key: &str| match key {
            "a.b" => Some(json!("text")),
            "n" => Some(json!(1.5)),
            "on" => Some(json!(true)),
            "list" => Some(json!(["x", "z"])),
            "map" => Some(json!({"k": {"v": 1}})),
            "loop" => Some(json!("$SKILL_DIR ${config.loop}")),
            _ => None,
        };
        for (body, expected) in [
            ("$SKILL_DIR/x ${SKILL_DIR}y", "/s/x /sy"),
            ("$PYTHON ${PYTHON}", "py py"),
            ("$SKILL_DIRS $skill_dir $HOME ${HOME} $$ $1 $", "$SKILL_DIRS $skill_dir $HOME ${HOME} $$ $1 $"),
            ("[${config.a.b}] ${config.n} ${config.on} [${config.no.such}]", "[text] 1.5 true []"),
            ("${config.list}", "- x\n- z"),
            ("${config.map}", "k:\n  v: 1"),
            (
                "$config.a.b ${config} ${config.} ${config.a b} ${config.a",
                "$config.a.b ${config} ${config.} ${config.a b} ${config.a",
            ),
            ("${config.loop}", "$SKILL_DIR ${config.loop}"),
            ("ä$SKILL_DIRä", "ä/sä"),
        ] {
            assert_eq!(fill(body, "/s", "py", &config), expected, "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn text_without_dollars_stays(text in "[^$]{0,50}") {
            proptest::prop_assert_eq!(fill(&text, "/s", "py", &|_| None), text);
        }

        #[test]
        fn any_text_is_filled(text in "[${}A-Z_.config ]{0,40}") {
            drop(fill(&text, "/s", "py", &|_| None));
        }
    }
}
