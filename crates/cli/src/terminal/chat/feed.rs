//! What the gateway tells the terminal, kept until the terminal has a moment.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use bub::kernel::{
    channel::Admission,
    turn::{Outbound, TurnError, TurnEvent, TurnResult},
};
use tokio::sync::Notify;

/// The most that is kept of the words and progress of turns while the terminal is busy, in bytes: a person
/// may leave a half-typed line for hours. Beyond it words are left out; the tape has them.
const MAX_BYTES: usize = 16 << 20;

/// Which message of this conversation, by its number.
pub(super) type MessageId = u64;

/// One thing that was told.
#[derive(Debug)]
pub(super) enum News {
    /// What has become of a message.
    Admitted(MessageId, String, Admission),
    /// Something happened in its turn.
    Event(MessageId, TurnEvent),
    /// Its turn has ended.
    Ended(MessageId, Result<TurnResult, TurnError>),
    /// A message that is no answer to one's own.
    Sent(Outbound),
}

#[derive(Debug, Default)]
struct Kept {
    news: VecDeque<News>,
    n_bytes: usize,
    is_cut: bool,
}

/// The news that wait.
#[derive(Debug, Default)]
pub(super) struct Feed {
    kept: Mutex<Kept>,
    arrived: Notify,
}

impl Feed {
    pub(super) fn push(&self, news: News) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let n_bytes = size(&news);
        let is_too_much = n_bytes > 0 && kept.n_bytes + n_bytes > MAX_BYTES;
        match (news, is_too_much) {
            (News::Event(id, _), true) if !kept.is_cut => {
                kept.is_cut = true;
                let notice = "what came while you were typing is too much to show: see `bub tape show`".to_owned();
                kept.news.push_back(News::Event(id, TurnEvent::Notice(notice)));
            }
            (News::Event(..), true) => {}
            (news, _) => {
                kept.n_bytes += n_bytes;
                kept.news.push_back(news);
            }
        }
        drop(kept);
        self.arrived.notify_one();
    }

    pub(super) fn take(&self) -> Option<News> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let news = kept.news.pop_front();
        match &news {
            Some(news) => kept.n_bytes = kept.n_bytes.saturating_sub(size(news)),
            None => kept.is_cut = false,
        }
        news
    }

    /// Waits for something to come.
    pub(super) async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

/// How much of the limit something takes: what can come without end does.
fn size(news: &News) -> usize {
    match news {
        News::Event(_, TurnEvent::Text(text) | TurnEvent::Reasoning(text)) => text.len() + 64,
        News::Event(_, TurnEvent::ToolProgress { text, .. }) => text.len() + 64,
        News::Event(_, TurnEvent::ToolCallDelta { delta, .. }) => delta.len() + 64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_ends_are_never_lost() {
        let feed = Feed::default();
        let word = "x".repeat(1 << 20);
        for _ in 0..100 {
            feed.push(News::Event(1, TurnEvent::Text(word.clone())));
        }
        feed.push(News::Ended(1, Err(TurnError::Cancelled)));
        let all: Vec<_> = std::iter::from_fn(|| feed.take()).collect();
        let texts = all.iter().filter(|it| matches!(it, News::Event(_, TurnEvent::Text(_)))).count();
        let notices = all.iter().filter(|it| matches!(it, News::Event(_, TurnEvent::Notice(_)))).count();
        assert_eq!((texts, notices, all.len()), (15, 1, 17));
        assert!(matches!(all.last(), Some(News::Ended(1, Err(TurnError::Cancelled)))));
        feed.push(News::Event(1, TurnEvent::Text(word)));
        assert!(matches!(feed.take(), Some(News::Event(_, TurnEvent::Text(_)))), "there is room again");
    }
}
