//! Which channels a gateway listens on.

use std::sync::Arc;

use bub_kernel::channel::{Channel, ChannelKind};

/// The channels that were chosen, and the words that chose nothing.
#[derive(Clone, Default)]
pub struct ChannelChoice {
    /// What to listen on.
    pub channels: Vec<Arc<dyn Channel>>,
    /// Names that no channel has.
    pub unknown: Vec<String>,
    /// Names of channels that are not set up.
    pub disabled: Vec<String>,
}

impl std::fmt::Debug for ChannelChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.channels.iter().map(|it| it.name()).collect();
        f.debug_struct("ChannelChoice")
            .field("channels", &names)
            .field("unknown", &self.unknown)
            .field("disabled", &self.disabled)
            .finish()
    }
}

/// Chooses by words: `all` is every channel that is set up but those for a person's own screen; a name is
/// that channel; `!name` takes one out, and alone means all others. With a channel that brings messages
/// come the ones that run in the background. Of two channels with the same name the first counts.
#[must_use]
pub fn choose_channels(all: &[Arc<dyn Channel>], words: &[String]) -> ChannelChoice {
    let words: Vec<&str> = words.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).collect();
    let out: Vec<&str> = words.iter().filter_map(|it| it.strip_prefix('!')).map(str::trim).collect();
    let named: Vec<&str> = words.iter().filter(|it| !it.starts_with('!')).copied().collect();
    let is_all = named.is_empty() || named.iter().any(|it| it.eq_ignore_ascii_case("all"));
    let mut choice = ChannelChoice::default();
    let mut seen: Vec<&str> = Vec::new();
    let mut possible: Vec<&Arc<dyn Channel>> = Vec::new();
    for channel in all {
        if !seen.contains(&channel.name()) {
            seen.push(channel.name());
            possible.push(channel);
        }
    }
    let names = named.iter().filter(|it| !it.eq_ignore_ascii_case("all")).chain(&out);
    choice.unknown = names.filter(|it| !seen.contains(it)).map(|it| (*it).to_owned()).collect();
    possible.retain(|it| {
        let is_enabled = it.is_enabled();
        if !is_enabled && named.contains(&it.name()) {
            choice.disabled.push(it.name().to_owned());
        }
        is_enabled && !out.contains(&it.name())
    });
    let is_named = |it: &Arc<dyn Channel>| named.contains(&it.name());
    let brings = possible.iter().any(|it| is_named(it) && it.kind() != ChannelKind::Lifecycle);
    let is_chosen = |it: &&Arc<dyn Channel>| match it.kind() {
        _ if is_named(it) => true,
        ChannelKind::Listener => is_all,
        ChannelKind::Lifecycle => is_all || brings,
        ChannelKind::Interface => false,
    };
    choice.channels = possible.into_iter().filter(is_chosen).cloned().collect();
    choice
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bub_kernel::{
        channel::{ChannelError, Inbox},
        turn::Outbound,
    };
    use tokio_util::sync::CancellationToken;

    use super::*;

    struct Named(&'static str, ChannelKind, bool);

    #[async_trait]
    impl Channel for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn kind(&self) -> ChannelKind {
            self.1
        }

        fn is_enabled(&self) -> bool {
            self.2
        }

        async fn run(&self, _: Inbox, _: CancellationToken) -> Result<(), ChannelError> {
            Ok(())
        }

        async fn send(&self, _: Outbound) -> Result<(), ChannelError> {
            Ok(())
        }
    }

    fn check(words: &str, chosen: &str, unknown: &str, disabled: &str) {
        use ChannelKind::{Interface, Lifecycle, Listener};
        let all: Vec<Arc<dyn Channel>> = [
            Named("cli", Interface, true),
            Named("telegram", Listener, true),
            Named("web", Listener, true),
            Named("discord", Listener, false),
            Named("mcp", Lifecycle, true),
            Named("web", Lifecycle, true),
        ]
        .into_iter()
        .map(|it| Arc::new(it) as Arc<dyn Channel>)
        .collect();
        let words: Vec<_> = words.split(',').map(str::to_owned).collect();
        let choice = choose_channels(&all, &words);
        let names: Vec<_> = choice.channels.iter().map(|it| it.name()).collect();
        assert_eq!(names.join(","), chosen, "{words:?}");
        assert_eq!(
            (choice.unknown.join(","), choice.disabled.join(",")),
            (unknown.into(), disabled.into()),
            "{words:?}"
        );
    }

    #[test]
    fn channels_are_chosen_by_words() {
        check("all", "telegram,web,mcp", "", "");
        check("ALL, !web", "telegram,mcp", "", "");
        check("all,!telegram,!web", "mcp", "", "");
        check("!web", "telegram,mcp", "", "");
        check("all,cli", "cli,telegram,web,mcp", "", "");
        check("web", "web,mcp", "", "");
        check("web,!mcp", "web", "", "");
        check("cli", "cli,mcp", "", "");
        check("mcp", "mcp", "", "");
        check("web,!web", "", "", "");
        check("discord", "", "", "discord");
        check("telegrm,web,!nope", "web,mcp", "telegrm,nope", "");
    }
}
