//! The pages of the reference that are made from tables of the kernel.

use std::fmt::Write as _;

use bub_kernel::{
    event::{EVENTS, EventInfo},
    hooks::{Composition, HOOK_LIMIT, HOOKS},
};
use expect_test::expect_file;

const HEAD: &str = "\
<!-- Made from the tables in crates/kernel/src/event.rs and crates/kernel/src/hooks/points.rs by `cargo xtask docs`; do not edit. -->

# Events and hooks

Two ways to watch and steer a turn from Rust. How to add them is in [plugins](../guide/plugins.md).

- **Hooks** are for plugins that add something or look on. They are isolated: what fails is passed over.
- **Event handlers** must have their say: what fails ends the turn. A policy that must hold even when it breaks is one of these.

## Hooks

A hook is a method of `bub_kernel::hooks::Hooks`; each has a default. Who ranks higher was registered later. `bub hooks` lists who implements what.

How several act as one:

- *asked*: the first answer wins, highest rank first.
- *gathered*: all answers count, lowest rank first.
- *chained*: highest rank first, each sees the changes of the one before; the first decision ends the chain.
- *observed*: all are told, nothing comes back.

";

const ISOLATION: &str = "
A hook that panics, gives an answer that makes no sense (arguments that are no object, say) or takes too long is logged, reported to `on_error` with the stage `hook`, and passed over as if it had said nothing; it is no veto. But a gateway does not take a message whose `resolve_session` fails, since it might come into another's session.
";

const EVENTS_HEAD: &str = "
## Events

Events are sent in the order of this list; those of a step for each step, those of a call for each call. Calls of one answer run at once, so their events mix. A command sends the events of its tool call and `CommandFinished`, and no others. Nested turns send theirs to the same handlers.

- Handlers are called in the order of their registration: first those of plugins, then those of the program. Each is waited for. Hooks come before handlers of the same moment; when a hook decides, handlers are not asked.
- `on` and `on_sync` take one type of event, `on_any` all; each returns an id for `off`. A handler that is added or taken out is so from the next event on.
- A handler that decides (see below) ends the delivery: later ones are not asked.
- A handler that fails or panics ends the turn with its error; what was said and done is recorded all the same.
- A handler may take as long as it likes. When the turn is cancelled it is dropped.
";

fn text(lines: &[&str]) -> String {
    lines.iter().map(|it| it.trim()).collect::<Vec<_>>().join(" ")
}

fn hooks(page: &mut String) {
    page.push_str("| Hook | | Called when | Is given | May | Time |\n|---|---|---|---|---|---|\n");
    for it in HOOKS {
        let time = if it.is_limited { "limited" } else { "the turn's" };
        let row = [it.when, it.given, it.may].map(|it| it.replace('|', "\\|")).join(" | ");
        writeln!(page, "| `{}` | {} | {row} | {time} |", it.name, it.composition).unwrap();
    }
    writeln!(
        page,
        "\nTime: a limited hook has {} seconds (`close` 10). The others may wait for a person or a machine, as long as the turn lasts: when it is cancelled, so are they; `summarize` has 180 seconds, and a gateway waits 5 for `resolve_session` and `admit`. A hook that blocks its thread without ever waiting can't be stopped.",
        HOOK_LIMIT.as_secs()
    )
    .unwrap();
    page.push_str(ISOLATION);
}

fn event(page: &mut String, event: &EventInfo) {
    writeln!(page, "\n### {}\n\n{}", event.name, text(event.when)).unwrap();
    if let Some(may) = event.may {
        writeln!(page, "Handlers may {may}.").unwrap();
    }
    page.push_str("\n| Field | Type | |\n|---|---|---|\n");
    for it in event.fields {
        let kind: String = it.kind.split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(page, "| `{}` | `{}` | {} |", it.name, kind.replace('|', "\\|"), text(it.meaning)).unwrap();
    }
}

#[test]
fn events_and_hooks_are_those_of_their_reference_page() {
    let mut page = HEAD.to_owned();
    hooks(&mut page);
    page.push_str(EVENTS_HEAD);
    for it in EVENTS {
        event(&mut page, it);
    }
    expect_file!["../../../../docs/reference/events-and-hooks.md"].assert_eq(&page);
}

#[test]
fn the_reference_page_explains_every_composition() {
    for it in [Composition::Asked, Composition::Gathered, Composition::Chained, Composition::Observed] {
        assert!(HEAD.contains(&format!("- *{it}*: ")), "{it}");
    }
}
