//! Reading what was set aside.

use bub_kernel::{
    text::{elide, thousands},
    tool::prelude::*,
};

use super::store::{self, Incomplete};
use crate::tape::failed;

/// Chunks that one call reads at most.
const MAX_COUNT: u64 = 4;
/// Characters of an unknown handle that are repeated.
const MAX_SHOWN_HANDLE: usize = 200;

/// Read a tool result that was too long for the conversation and was set aside. Each call returns some chunks of the text, of up to 16 KiB each, and the cursor to go on from; go on until it says complete.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SpillReadArgs {
    /// Handle that stands in the place of the result.
    handle: String,
    /// Chunks that are read already: 0 at first, then the last next_cursor.
    #[serde(default)]
    cursor: i64,
    /// How many chunks to read, at most 4.
    #[serde(default = "one")]
    count: i64,
    /// Whether to read backward from the end. The text of a call is in its own order all the same.
    #[serde(default)]
    from_end: bool,
}

fn one() -> i64 {
    1
}

/// The tool `spill.read`.
#[derive(Clone, Copy, Debug)]
pub struct SpillRead;

impl Tool for SpillRead {
    const NAME: &'static str = "spill.read";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = SpillReadArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: SpillReadArgs) -> Result<String, ToolError> {
        let SpillReadArgs { handle, cursor, count, from_end } = args;
        let Ok(cursor) = u64::try_from(cursor) else { return Ok("`cursor` must be >= 0.".into()) };
        let Some(count) = u64::try_from(count).ok().filter(|it| *it > 0) else {
            return Ok("`count` must be >= 1.".into());
        };
        let Ok(sidecar) = ctx.tape.sidecar(store::SIDECAR) else {
            return Ok("spill sidecar unavailable in this context.".into());
        };
        let handle = handle.trim();
        let Some(manifest) = store::manifest(&sidecar, handle).await.map_err(failed)? else {
            return Ok(format!("[no spilled tool result for handle '{}']", elide(handle, MAX_SHOWN_HANDLE)));
        };
        let page = Page::of(manifest.chunks, cursor, count.min(MAX_COUNT), from_end);
        let (chunks, content) = if page.start == page.stop {
            ("none".to_owned(), String::new())
        } else {
            match store::read(&sidecar, handle, page.start, page.stop).await {
                Ok(content) => (format!("{}-{}", page.start, page.stop - 1), content),
                Err(Incomplete::Tape(err)) => return Err(failed(err)),
                Err(reason) => return Ok(format!("[incomplete spilled tool result: {reason}]")),
            }
        };
        Ok(format!(
            "[spilled tool result: {} bytes, {} chunks]\nchunks: {chunks}\nnext_cursor: {}\ncomplete: {}\n\
             content:\n{content}",
            thousands(manifest.bytes),
            thousands(manifest.chunks),
            page.next_cursor,
            page.is_complete,
        ))
    }
}

/// A run of chunks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Page {
    start: u64,
    /// The first one behind it.
    stop: u64,
    next_cursor: u64,
    /// Whether nothing is left in this direction.
    is_complete: bool,
}

impl Page {
    /// The page of `count` of `total` chunks behind those that are read already.
    fn of(total: u64, cursor: u64, count: u64, from_end: bool) -> Self {
        if from_end {
            let stop = total.saturating_sub(cursor);
            let start = stop.saturating_sub(count);
            Self { start, stop, next_cursor: cursor.saturating_add(stop - start), is_complete: start == 0 }
        } else {
            let start = cursor.min(total);
            let stop = start.saturating_add(count).min(total);
            Self { start, stop, next_cursor: stop, is_complete: stop == total }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_lie_where_the_cursor_says() {
        let check = |(total, cursor, count, from_end), expected| {
            let Page { start, stop, next_cursor, is_complete } = Page::of(total, cursor, count, from_end);
            assert_eq!((start, stop, next_cursor, is_complete), expected, "{total} {cursor} {count} {from_end}");
        };
        check((5, 0, 2, false), (0, 2, 2, false));
        check((5, 4, 2, false), (4, 5, 5, true));
        check((5, 9, 2, false), (5, 5, 5, true));
        check((5, 0, 2, true), (3, 5, 2, false));
        check((5, 4, 2, true), (0, 1, 5, true));
        check((5, 9, 2, true), (0, 0, 9, true));
        check((0, 0, 1, false), (0, 0, 0, true));
        check((5, u64::MAX, 4, true), (0, 0, u64::MAX, true));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pages_cover_everything_once(total in 0u64..200, counts in prop::collection::vec(1u64..=4, 200), from_end: bool) {
            let mut seen = Vec::new();
            let mut cursor = 0;
            for count in counts {
                let page = Page::of(total, cursor, count, from_end);
                let chunks: Vec<_> = (page.start..page.stop).collect();
                if from_end {
                    seen.splice(0..0, chunks);
                } else {
                    seen.extend(chunks);
                }
                cursor = page.next_cursor;
                if page.is_complete {
                    break;
                }
            }
            prop_assert_eq!(seen, (0..total).collect::<Vec<_>>());
        }
    }
}
