//! What the code printed, as far as it is kept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bub_kernel::text::thousands;
use tokio::sync::Notify;

/// The most bytes of output that are kept of one run: half from the start, half from the end.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// The most bytes of output that wait for a watcher; a slower one misses some.
const MAX_NEWS_BYTES: usize = 1 << 20;

/// Keeps the start and the end of what is printed, and passes it on as it comes.
#[derive(Debug, Default)]
pub(crate) struct Output {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    head: String,
    tail: String,
    /// Characters between the two.
    omitted: u64,
    news: String,
    /// Characters that the watcher missed.
    missed: u64,
}

impl Output {
    pub(crate) fn push(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut inner = self.lock();
        inner.keep(text);
        if inner.news.len() + text.len() <= MAX_NEWS_BYTES {
            inner.news.push_str(text);
        } else {
            inner.missed += text.chars().count() as u64;
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// All of it, with a note where some was left out.
    pub(crate) fn text(&self) -> String {
        let inner = self.lock();
        let tail = last_bytes(&inner.tail, MAX_OUTPUT_BYTES / 2);
        let cut = inner.tail.get(..inner.tail.len() - tail.len()).unwrap_or_default();
        let omitted = inner.omitted + cut.chars().count() as u64;
        if omitted == 0 {
            return format!("{}{tail}", inner.head);
        }
        format!("{}{}{tail}", inner.head, note(omitted))
    }

    /// What came since the last time; empty when nothing did.
    pub(crate) fn take_news(&self) -> String {
        let mut inner = self.lock();
        let mut news = std::mem::take(&mut inner.news);
        let missed = std::mem::take(&mut inner.missed);
        if missed > 0 {
            news.push_str(&note(missed));
        }
        news
    }

    /// Waits until there may be news.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep(&mut self, text: &str) {
        let half = MAX_OUTPUT_BYTES / 2;
        let mut rest = text;
        if self.tail.is_empty() && self.head.len() < half {
            let room = text.floor_char_boundary(half - self.head.len());
            let (fits, more) = text.split_at_checked(room).unwrap_or((text, ""));
            self.head.push_str(fits);
            rest = more;
        }
        self.tail.push_str(rest);
        // Cutting at twice the size keeps the work per byte constant.
        if self.tail.len() > 2 * half {
            let kept = last_bytes(&self.tail, half).to_owned();
            let cut = self.tail.get(..self.tail.len() - kept.len()).unwrap_or_default();
            self.omitted += cut.chars().count() as u64;
            self.tail = kept;
        }
    }
}

fn last_bytes(text: &str, max: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(max))..).unwrap_or_default()
}

fn note(omitted: u64) -> String {
    format!("\n...[{} chars omitted]...\n", thousands(omitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_as_it_is() {
        let output = Output::default();
        for text in ["a", "", "ä\n", "😀 "] {
            output.push(text);
        }
        assert_eq!(output.text(), "aä\n😀 ");
        assert_eq!(output.take_news(), "aä\n😀 ");
        assert_eq!(output.take_news(), "");
    }

    #[test]
    fn r111_endless_output_is_cut_in_the_middle() {
        let output = Output::default();
        output.push("start ");
        for _ in 0..5_000 {
            output.push(&"ä".repeat(500));
        }
        output.push(" end");
        let text = output.text();
        assert!(text.len() <= MAX_OUTPUT_BYTES + 100, "{}", text.len());
        assert!(text.starts_with("start ä") && text.ends_with("ä end"));
        let kept = text.chars().filter(|it| *it == 'ä').count();
        let omitted = thousands(2_500_000 - kept as u64);
        assert!(text.contains(&format!("\n...[{omitted} chars omitted]...\n")), "{omitted}");
        assert!(output.take_news().len() <= MAX_NEWS_BYTES + 100);
        assert!(output.lock().tail.capacity() <= 4 * MAX_OUTPUT_BYTES);
    }
}
