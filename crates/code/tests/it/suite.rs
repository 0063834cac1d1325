//! What holds for code whoever runs it. Each case runs on each runner.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use bub_kernel::code::CodeError;
use serde_json::json;

use crate::kit::Subject;

/// Makes a test of each case for each runner: `suite::process::<case>`, `suite::sandbox::<case>`.
macro_rules! on_each_runner {
    ($($case:ident)*) => {
        mod process {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(&crate::process::subject()).await;
            })*
        }

        mod sandbox {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(&crate::sandbox::subject()).await;
            })*
        }
    };
}

on_each_runner! {
    code_that_ends_prints_what_it_prints
    r116_only_printed_text_is_the_result
    r115_empty_code_is_an_empty_result
    await_works_at_top_level
    gather_is_concurrent
    r113_gather_returns_exceptions_when_asked
    r113_gather_raises_and_siblings_run_once
    many_gathered_calls_all_come_back
    errors_have_the_line_of_the_code
    syntax_errors_are_reported
    recursion_is_an_error
    tool_errors_can_be_caught
    tool_errors_have_the_line_of_the_code
    r114_wrong_calls_are_errors
    r114_a_call_without_await_gets_a_hint
    r115_names_that_shadow_builtins_work
    r115_exits_are_reported
    values_come_back_as_they_were
    values_arrive_as_json
    values_that_cannot_pass_are_type_errors
    results_that_nest_too_deep_are_errors
    large_values_pass
    large_outputs_are_whole
    output_comes_as_it_is_printed
    r111_output_before_a_time_out_is_kept
    r111_output_before_an_error_is_kept
    r111_endless_output_can_be_stopped
    endless_code_can_be_stopped
    stopping_drops_open_calls
    r110_bombs_end
    r108_nothing_runs_after_the_end
    runs_are_independent
}

async fn code_that_ends_prints_what_it_prints(subject: &Subject) {
    for (code, expected) in [
        ("print(1)", "1\n"),
        ("print('a', 'b', sep='-', end='!')", "a-b!"),
        ("print('  padded  ')\nprint()", "  padded  \n\n"),
        ("print('ä €😀 \\u2028 \\r\\n tab\\t')", "ä €😀 \u{2028} \r\n tab\t\n"),
        ("for i in range(3):\n    print(i)", "0\n1\n2\n"),
        ("def f(x):\n    return x + 1\nprint(f(1))", "2\n"),
        ("async def f(x):\n    return x + 1\nprint(await f(1))", "2\n"),
        ("x = {'a': [1, 2.5, None, True]}\nprint(x)", "{'a': [1, 2.5, None, True]}\n"),
        ("print(f'{3.14159:.2f} {10:>4}')", "3.14   10\n"),
        ("print(2 ** 100)", "1267650600228229401496703205376\n"),
        ("import json\nprint(json.dumps({'a': [1, None]}))", "{\"a\": [1, null]}\n"),
        ("import re\nprint(re.findall('[0-9]+', 'a1b22'))", "['1', '22']\n"),
        ("import math\nprint(math.floor(2.7))", "2\n"),
    ] {
        subject.prints(code, expected).await;
    }
}

async fn r116_only_printed_text_is_the_result(subject: &Subject) {
    subject.prints("x = [1, 2]\nprint('p')\n{'k': x}", "p\n").await;
    subject.prints("1 + 1", "").await;
    let outcome = subject.raises("print('p')\nraise ValueError('v')", "ValueError", "v").await;
    assert_eq!(outcome.output, "p\n");
}

async fn r115_empty_code_is_an_empty_result(subject: &Subject) {
    for code in ["", "\n\n", "   ", "# nothing", "# a\n\n# b\n", "pass", "'just text'"] {
        subject.prints(code, "").await;
    }
}

async fn await_works_at_top_level(subject: &Subject) {
    subject.prints("print(await tools.add(a=1, b=2))", "3\n").await;
    subject.prints("total = 0\nfor i in range(5):\n    total += await tools.add(a=i, b=1)\nprint(total)", "15\n").await;
    let code = "async def twice(n):\n    return await tools.add(a=n, b=n)\nif True:\n    print(await twice(4))";
    subject.prints(code, "8\n").await;
    subject
        .prints("import asyncio\nprint(await tools.add(a=1, b=2))\nawait asyncio.sleep(0.01)\nprint('x')", "3\nx\n")
        .await;
    subject.prints("print([await tools.add(a=i, b=0) for i in range(3)])", "[0, 1, 2]\n").await;
}

async fn gather_is_concurrent(subject: &Subject) {
    let code = "import asyncio\n\
                print(await asyncio.gather(tools.sleep(ms=400), tools.sleep(ms=300), tools.sleep(ms=200)))";
    let outcome = subject.run(code).await;
    assert_eq!((outcome.output.as_str(), outcome.failure()), ("[400, 300, 200]\n", String::new()));
    let calls: Vec<u64> = outcome.calls.iter().map(|(_, arguments)| arguments["ms"].as_u64().unwrap()).collect();
    assert_eq!(calls, [400, 300, 200]);
    assert_eq!(outcome.max_open, 3);
}

async fn r113_gather_returns_exceptions_when_asked(subject: &Subject) {
    let code = "import asyncio\n\
                r = await asyncio.gather(tools.echo(value='a'), tools.fail(message='missing'), tools.echo(value='b'), \
                return_exceptions=True)\n\
                print(r[0], isinstance(r[1], Exception), r[1], r[2])";
    subject.prints(code, "a True [not_found] missing b\n").await;
}

async fn r113_gather_raises_and_siblings_run_once(subject: &Subject) {
    let code = "import asyncio\n\
                try:\n    await asyncio.gather(tools.echo(value='a'), tools.fail(message='file x'), tools.echo(value='b'))\n\
                except Exception as err:\n    print(err)";
    let outcome = subject.run(code).await;
    assert_eq!((outcome.output.as_str(), outcome.failure()), ("[not_found] file x\n", String::new()));
    assert!(outcome.count("echo") <= 2 && outcome.count("fail") == 1);
}

async fn many_gathered_calls_all_come_back(subject: &Subject) {
    let code = "import asyncio\n\
                print(sum(await asyncio.gather(*[tools.add(a=i, b=1) for i in range(1000)])))\n\
                print(len(await asyncio.gather(*[tools.sleep(ms=20) for i in range(1000)])))";
    let outcome = subject.run(code).await;
    assert_eq!((outcome.output.as_str(), outcome.failure()), ("500500\n1000\n", String::new()));
    assert_eq!(outcome.calls.len(), 2000);
}

async fn errors_have_the_line_of_the_code(subject: &Subject) {
    let code = "print('a')\n\ndef f(x):\n    return 1 / x\n\nf(0)\n";
    let outcome = subject.raises(code, "ZeroDivisionError", "division by zero").await;
    for part in ["<run_code-00000000>", "line 6", "f(0)", "line 4", "return 1 / x", "ZeroDivisionError"] {
        assert!(outcome.traceback().contains(part), "{part}: {}", outcome.traceback());
    }
    for (code, kind, part) in [
        ("raise ValueError('a: b')", "ValueError", "a: b"),
        ("x", "NameError", "'x'"),
        ("{}['k']", "KeyError", "k"),
        ("[][1]", "IndexError", "out of range"),
        ("'a' + 1", "TypeError", "str"),
        ("None.x", "AttributeError", "'x'"),
        ("assert 1 == 2, 'unequal'", "AssertionError", "unequal"),
        ("int('x')", "ValueError", "'x'"),
    ] {
        let outcome = subject.raises(code, kind, part).await;
        assert!(outcome.traceback().contains("line 1"), "{}", outcome.traceback());
        // Only frames of the code.
        assert_eq!(outcome.traceback().matches("line ").count(), 1, "{}", outcome.traceback());
    }
}

async fn syntax_errors_are_reported(subject: &Subject) {
    for code in ["print(", "def f(:\n  pass", "a b", "  indented\nx", "return 1", "x = = 1", "'unterminated"] {
        let outcome = subject.run(&format!("print(1)\n{code}")).await;
        match &outcome.end {
            Some(Err(CodeError::Raised { error, .. })) => {
                let kind = error.split(':').next().unwrap();
                assert!(["SyntaxError", "IndentationError"].contains(&kind), "{code}: {error}");
            }
            other => panic!("{code}: {other:?}"),
        }
        // Nothing ran.
        assert_eq!(outcome.output, "");
    }
}

async fn recursion_is_an_error(subject: &Subject) {
    subject.raises("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError", "recursion").await;
    let code = "def f():\n    return f()\ntry:\n    f()\nexcept RecursionError:\n    print('caught')";
    subject.prints(code, "caught\n").await;
}

async fn tool_errors_can_be_caught(subject: &Subject) {
    let code = "try:\n    await tools.fail(message='gone: ä')\nexcept Exception as err:\n    print(err)\n\
                print(await tools.add(a=1, b=1))";
    subject.prints(code, "[not_found] gone: ä\n2\n").await;
}

async fn tool_errors_have_the_line_of_the_code(subject: &Subject) {
    let code = "print('before')\nx = 1\nawait tools.fail(message='gone')\nprint('after')";
    let outcome = subject.raises(code, "BubError", "[not_found] gone").await;
    assert_eq!(outcome.output, "before\n");
    for part in ["line 3", "await tools.fail(message='gone')"] {
        assert!(outcome.traceback().contains(part), "{part}: {}", outcome.traceback());
    }
}

async fn r114_wrong_calls_are_errors(subject: &Subject) {
    subject.raises("await tools.add(1, 2)", "TypeError", "tools.add() accepts keyword arguments only").await;
    subject.raises("await tools.ad(a=1, b=2)", "AttributeError", "ad").await;
    subject.raises("await tools.add(x=1)", "BubError", "[invalid_input] add takes two integers").await;
    let code = "for call in (lambda: tools.add(1), lambda: tools.nothing(x=1)):\n    try:\n        await call()\n    \
                except (TypeError, AttributeError) as err:\n        print(type(err).__name__)";
    subject.prints(code, "TypeError\nAttributeError\n").await;
}

async fn r114_a_call_without_await_gets_a_hint(subject: &Subject) {
    for code in ["print(tools.add(a=1, b=2))", "x = tools.add(a=1, b=2)", "tools.add(a=1, b=2)"] {
        let outcome = subject.run(code).await;
        let told = format!("{}{}", outcome.output, outcome.failure());
        assert!(outcome.output == "3\n" || told.contains("await"), "{code}: {told}");
    }
}

async fn r115_names_that_shadow_builtins_work(subject: &Subject) {
    let code = "import asyncio\nprint(await tools.print(x=1))\nprint(await tools.asyncio(self=1, name=2))\n\
                print(await asyncio.gather(tools.add(a=1, b=2)))";
    subject.prints(code, "the tool print\nthe tool asyncio\n[3]\n").await;
    subject.prints("list = [1]\nprint(list)", "[1]\n").await;
}

async fn r115_exits_are_reported(subject: &Subject) {
    subject.raises("print('a')\nraise SystemExit(3)", "SystemExit", "3").await;
    let outcome = subject.run("print('a')\nraise KeyboardInterrupt").await;
    assert!(matches!(outcome.end, Some(Err(_))), "{:?}", outcome.end);
    assert_eq!(outcome.output, "a\n");
    subject.prints("print('still here')", "still here\n").await;
}

async fn values_come_back_as_they_were(subject: &Subject) {
    let values = [
        "None",
        "True",
        "False",
        "0",
        "-1",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "0.1",
        "-0.0",
        "1e22",
        "1e300",
        "5e-324",
        "2.638344616030823e-256",
        "1.0",
        "''",
        "'ä€😀'",
        "'\\x00\\x1f\\x7f'",
        "'\\u2028\\u2029'",
        "'a\\r\\nb'",
        "'\\\\\"/'",
        "[]",
        "{}",
        "[[], [[]], {}]",
        "{'': 1, 'ä b': [None]}",
        "{'b': 1, 'a': 2}",
        "[1, 'two', 3.0, None, True, {'k': []}]",
    ];
    let code = format!(
        "for value in [{}]:\n    back = await tools.echo(value=value)\n    \
         if repr(back) != repr(value):\n        print(repr(value), '->', repr(back))",
        values.join(", ")
    );
    subject.prints(&code, "").await;
}

async fn values_arrive_as_json(subject: &Subject) {
    for (value, expected) in [
        ("(1, 'a')", json!([1, "a"])),
        ("{3}", json!([3])),
        ("[{1: 'a', False: 'b'}]", json!([{"1": "a", "false": "b"}])),
        ("{None: 1, 2.5: 2}", json!({"null": 1, "2.5": 2})),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("0.1 + 0.2", json!(0.1 + 0.2)),
        ("1.0", json!(1.0)),
        ("'\\ud83d\\ude00' if False else '😀'", json!("😀")),
        ("{'b': 1, 'a': {'z': 1, 'y': 2}}", json!({"b": 1, "a": {"z": 1, "y": 2}})),
    ] {
        let outcome = subject.run(&format!("await tools.echo(value={value})")).await;
        assert_eq!(outcome.failure(), "", "{value}");
        assert_eq!(outcome.echoed(), &expected, "{value}");
        assert_eq!(outcome.echoed().to_string(), expected.to_string(), "{value}");
    }
}

async fn values_that_cannot_pass_are_type_errors(subject: &Subject) {
    for value in [
        "float('nan')",
        "float('inf')",
        "[1, float('-inf')]",
        "18446744073709551616",
        "-9223372036854775809",
        "2 ** 70",
        "[{'a': 10 ** 30}]",
        "b'bytes'",
        "{1, b'x'}",
        "print",
        "tools",
        "{(1, 2): 3}",
        "...",
    ] {
        let code = format!(
            "try:\n    await tools.echo(value={value})\n    print('it passed')\n\
             except TypeError as err:\n    print('refused')\nprint(await tools.add(a=1, b=2))"
        );
        let outcome = subject.run(&code).await;
        assert_eq!((outcome.output.as_str(), outcome.failure().as_str()), ("refused\n3\n", ""), "{value}");
        assert_eq!(outcome.count("echo"), 0, "{value}");
    }
    for nest in ["x = [x]", "x = {'k': x}"] {
        let code = format!(
            "x = 1\nfor i in range(1000):\n    {nest}\ntry:\n    await tools.echo(value=x)\n\
             except TypeError as err:\n    print('levels' in str(err))"
        );
        subject.prints(&code, "True\n").await;
    }
    let code = "x = []\nx.append(x)\ntry:\n    await tools.echo(value=x)\nexcept TypeError:\n    print('refused')";
    subject.prints(code, "refused\n").await;
}

async fn results_that_nest_too_deep_are_errors(subject: &Subject) {
    let code = "x = await tools.nested(levels=100)\nn = 0\nwhile x:\n    x = x[0]\n    n += 1\nprint(n)\n\
                try:\n    await tools.nested(levels=1000)\nexcept Exception as err:\n    print(err)";
    let refused = "[tool] tool result is not JSON serializable: nested more than 100 levels deep\n";
    subject.prints(code, &format!("100\n{refused}")).await;
}

async fn large_values_pass(subject: &Subject) {
    let code = "x = await tools.big(n=10_000_000)\nprint(len(x), len(await tools.echo(value=x)))";
    subject.prints(code, "10000000 10000000\n").await;
    let code = "x = [{'a': i, 'b': str(i)} for i in range(20000)]\nprint(await tools.echo(value=x) == x)";
    subject.prints(code, "True\n").await;
}

async fn large_outputs_are_whole(subject: &Subject) {
    let outcome = subject.run("print('ä' * 2_000_000)\nprint('end')").await;
    assert_eq!(outcome.failure(), "");
    assert!(outcome.output == format!("{}\nend\n", "ä".repeat(2_000_000)), "{} bytes", outcome.output.len());
    let outcome = subject.run("for i in range(50000):\n    print(i)").await;
    let expected: String = (0..50_000).map(|it| format!("{it}\n")).collect();
    assert!(outcome.output == expected, "{} bytes", outcome.output.len());
}

async fn output_comes_as_it_is_printed(subject: &Subject) {
    let code = "print('one')\nawait tools.sleep(ms=400)\nprint('two')\nawait tools.sleep(ms=400)\nprint('three')";
    let outcome = subject.run(code).await;
    assert_eq!(outcome.output, "one\ntwo\nthree\n");
    let at = |text: &str| outcome.stamps.iter().find(|it| it.1.contains(text)).unwrap().0;
    assert!(at("two") - at("one") >= Duration::from_millis(300), "{:?}", outcome.stamps);
    assert!(at("three") - at("two") >= Duration::from_millis(300), "{:?}", outcome.stamps);
}

async fn r111_output_before_a_time_out_is_kept(subject: &Subject) {
    let outcome = subject.run_for("print('step1')\nfor i in range(10 ** 12):\n    pass", Duration::from_secs(2)).await;
    assert!(outcome.end.is_none());
    assert_eq!(outcome.output, "step1\n");
    let outcome = subject.run_for("print('step1')\nawait tools.never()", Duration::from_secs(2)).await;
    assert_eq!((outcome.end.is_none(), outcome.output.as_str()), (true, "step1\n"));
}

async fn r111_output_before_an_error_is_kept(subject: &Subject) {
    let outcome = subject.raises("print('a')\n1/0", "ZeroDivisionError", "").await;
    assert_eq!(outcome.output, "a\n");
    assert!(outcome.traceback().contains("line 2"));
}

async fn r111_endless_output_can_be_stopped(subject: &Subject) {
    let start = Instant::now();
    let outcome = subject.run_for("while True:\n    print('x' * 100)", Duration::from_millis(1500)).await;
    assert!(outcome.output.starts_with("xxx"));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

async fn endless_code_can_be_stopped(subject: &Subject) {
    for code in [
        "while True:\n    pass",
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "import asyncio\nwhile True:\n    await asyncio.sleep(0)",
        "while True:\n    await tools.add(a=1, b=2)",
        "async def f():\n    while True:\n        pass\nawait f()",
        "await tools.never()",
    ] {
        let outcome = subject.run_for(code, Duration::from_millis(700)).await;
        assert!(outcome.end.is_none(), "{code}: {:?}", outcome.end);
        assert!(outcome.took < Duration::from_secs(15), "{code}: {:?}", outcome.took);
        let (calls, n_calls) = (outcome.late_calls.clone(), outcome.late_calls.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(calls.load(Ordering::SeqCst), n_calls, "{code}");
    }
}

async fn stopping_drops_open_calls(subject: &Subject) {
    let code = "import asyncio\nawait asyncio.gather(*[tools.never() for i in range(5)])";
    let outcome = subject.run_for(code, Duration::from_millis(1500)).await;
    assert!(outcome.end.is_none());
    assert_eq!((outcome.calls.len(), outcome.n_dropped), (5, 5));
}

async fn r110_bombs_end(subject: &Subject) {
    for code in [
        "x = 'a'\nwhile 1:\n    x += x",
        "[0] * 10**12",
        "10**10**8",
        "2**10000000 % 7",
        "'a' * 10**11",
        "'%1000000000d' % 1",
        "sorted(range(10**9))",
        "x = []\nwhile True:\n    x.append('y' * 1000000)",
        "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    ] {
        let outcome = subject.run_for(&format!("print('start')\n{code}"), Duration::from_secs(3)).await;
        assert!(outcome.took < Duration::from_secs(6), "{code}: {:?}", outcome.took);
        assert_eq!(outcome.output, "start\n", "{code}: {}", outcome.failure());
    }
    subject.prints("print('still here')", "still here\n").await;
}

async fn r108_nothing_runs_after_the_end(subject: &Subject) {
    let code = "class E:\n    def __repr__(self):\n        while True:\n            pass\n    \
                def __eq__(self, other):\n        while True:\n            pass\n    \
                def __del__(self):\n        while True:\n            pass\n\nprint('p')\ne = E()\ne";
    let outcome = subject.run_for(code, Duration::from_secs(20)).await;
    assert_eq!((outcome.output.as_str(), outcome.failure().as_str()), ("p\n", ""));
    assert_eq!(outcome.late_calls.load(Ordering::SeqCst), 0);
}

async fn runs_are_independent(subject: &Subject) {
    let codes: Vec<String> = (0..4).map(|it| format!("x = {it}\nawait tools.sleep(ms=100)\nprint(x)")).collect();
    let outcomes = futures::future::join_all(codes.iter().map(|it| subject.run(it))).await;
    let outputs: Vec<&str> = outcomes.iter().map(|it| it.output.as_str()).collect();
    assert_eq!(outputs, ["0\n", "1\n", "2\n", "3\n"]);
    subject.prints("x = 1", "").await;
    subject.raises("print(x)", "NameError", "x").await;
}
