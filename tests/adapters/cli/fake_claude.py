"""Plays Claude Code as far as the tests need it. What it does stands in FAKE_DO."""

import json
import os
import signal
import subprocess
import sys
import time

SESSION = "11111111-2222-4333-8444-555555555555"
GONE = f"No conversation found with session ID: {SESSION}"


def say(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def begin(session: str = SESSION) -> None:
    say(type="system", subtype="init", session_id=session, model="claude-fake", cwd=os.getcwd())


def speak(text: str, number: int = 1) -> None:
    usage = {"input_tokens": 100, "output_tokens": 1}
    message = {"id": f"msg_{number}", "model": "claude-fake", "usage": usage}
    say(type="assistant", message={**message, "content": [{"type": "text", "text": text}]})


def tool(number: int = 1, *, command: str = "true") -> None:
    block = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
    message = {"id": f"msg_{number}", "model": "claude-fake", "usage": {"input_tokens": 100}}
    say(type="assistant", message={**message, "content": [block]})


def result(text: str = "Fine.", **more: object) -> None:
    used = {"inputTokens": 100, "outputTokens": 10, "costUSD": 0.5}
    line = {"subtype": "success", "is_error": False, "result": text, "session_id": SESSION}
    say(type="result", **{**line, "modelUsage": {"claude-fake": used}, **more})


def fail(text: str, status: int) -> None:
    say(type="result", subtype="success", is_error=True, result=text, api_error_status=status)
    sys.exit(1)


def daemon(path: str) -> None:
    """A grandchild in a session of its own, with nothing of ours but its environment."""
    code = "import os,time;open(os.environ['P'],'w').write(str(os.getpid()));time.sleep(600)"
    starter = (
        "import os,subprocess,sys;"
        f"subprocess.Popen([sys.executable,'-c',{code!r}],start_new_session=True)"
    )
    subprocess.run([sys.executable, "-c", starter], env={**os.environ, "P": path}, check=True)
    while not os.path.exists(path):
        time.sleep(0.01)


def main() -> None:
    if "--version" in sys.argv:
        print("9.8.7 (Claude Code)")
        return
    prompt = sys.stdin.read()
    with open(os.environ["FAKE_LOG"], "a") as log:
        seen = {"argv": sys.argv[1:], "prompt": prompt, "env": dict(os.environ)}
        log.write(json.dumps(seen) + "\n")
    do, _, argument = os.environ.get("FAKE_DO", "answer").partition(" ")
    if do == "forget" and "--resume" in sys.argv:
        gone = f"No conversation found with session ID: {sys.argv[sys.argv.index('--resume') + 1]}"
        say(type="result", subtype="error_during_execution", is_error=True, errors=[gone])
        sys.exit(1)
    if do == "dawdle" and "--resume" in sys.argv:
        time.sleep(1.5)
        say(type="result", subtype="error_during_execution", is_error=True, errors=[GONE])
        sys.exit(1)
    begin()
    match do:
        case "dawdle":
            while True:
                with open(argument, "a") as ticks:
                    ticks.write("tick\n")
                time.sleep(0.1)
        case "answer" | "forget":
            speak("Fine.")
            result(argument.replace("\\n", "\n") or "Fine.")
        case "leak":
            key = os.environ["PAPERCLIP_API_KEY"] + " " + os.environ["SECRET"]
            tool(command=f"echo {key}")
            say(
                type="user",
                message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": key}]},
            )
            speak(key)
            sys.stderr.write(key + "\n")
            result(key)
        case "fail":
            fail(f"API Error: {argument}", int(argument))
        case "excuse":  # a refusal of the provider, told with exit code 0
            text = f"API Error: {argument}"
            speak(text)
            status = int(argument.split()[0])
            say(
                type="result",
                subtype="success",
                is_error=True,
                result=text,
                api_error_status=status,
            )
        case "limit":  # of a plan, lifted so many seconds from now
            limit = {"status": "rejected", "resetsAt": int(time.time()) + int(argument)}
            say(type="rate_limit_event", rate_limit_info={**limit, "rateLimitType": "five_hour"})
            fail("You've hit your session limit", 429)
        case "linger":
            result()
            time.sleep(600)
        case "hang":
            time.sleep(600)
        case "chatter":
            while True:
                sys.stdout.write("x" * 200 + "\n")
        case "circle":
            number = 0
            while True:
                number += 1
                speak("again", number)
                time.sleep(0.005)
        case "silent":
            os._exit(0)
        case "open":
            tool()
            os._exit(3)
        case "interruptible":
            stop = []
            signal.signal(signal.SIGINT, lambda *_: stop.append(1))
            speak("Working")
            while not stop:
                time.sleep(0.01)
            result(is_error=True, subtype="error_during_execution", terminal_reason="aborted_tools")
        case "daemon":
            daemon(argument)
            speak("Working")
            time.sleep(600)
        case "leftover":
            daemon(argument)
            speak("Fine.")
            result()


main()
