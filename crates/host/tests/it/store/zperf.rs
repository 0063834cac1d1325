use super::*;
use bub_kernel::tape::*;
use std::time::Instant;
#[tokio::test]
async fn zperf() {
    for home in ["/tmp/tp/small", "/tmp/tp/h"] {
        let store = store(Path::new(home));
        let tape = TapeName::free("d42b9c57d24cf5db__8ddf878039b70767");
        macro_rules! time {
            ($n:expr, $e:expr) => {{
                let t = Instant::now();
                let r = $e;
                eprintln!("{home} {} {:?}", $n, t.elapsed());
                r
            }};
        }
        time!("append", store.append(&tape, &messages(&["a"])).await.unwrap());
        time!("append", store.append(&tape, &messages(&["a"])).await.unwrap());
        let n =
            time!("since anchor", store.read(&tape, &TapeQuery::default().after_last_anchor()).await.unwrap()).len();
        eprintln!("{n}");
        time!(
            "setting (none)",
            store.read(&tape, &TapeQuery::default().event("model_switch").newest_first().limit(1)).await.unwrap()
        );
        time!(
            "between",
            store.read(&tape, &TapeQuery::default().between_anchors("a1", "a1000").limit(3)).await.unwrap()
        );
        time!("stats", store.stats(&tape).await.unwrap());
        time!("stats again", store.stats(&tape).await.unwrap());
        for q in ["zq", "kubernets", "servr", "needle of two"] {
            time!(
                q,
                store
                    .read(
                        &tape,
                        &TapeQuery {
                            text: Some(TextMatch::new(q, true)),
                            limit: Some(20),
                            newest_first: true,
                            distinct: true,
                            ..TapeQuery::default()
                        }
                        .kind(EntryKind::Message)
                        .kind(EntryKind::ToolResult)
                    )
                    .await
                    .unwrap()
            );
        }
    }
}
