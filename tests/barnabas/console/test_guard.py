"""Who may ask the console: Host, Origin, and what its answers forbid the browser."""

from __future__ import annotations

import pytest

from tests.barnabas.console.running import Console


@pytest.mark.parametrize("path", ["", "/topics", "/ticks"])
@pytest.mark.parametrize("host", ["evil.example:{port}", "localhost", "localhost:1", "127.0.0.1.evil.example:{port}", ""])
def test_other_hosts_are_refused(console: Console, path: str, host: str) -> None:
    """Of pages and of streams: a name that turned to 127.0.0.1 is not ours."""
    assert console.get(console.base + path, Host=host.format(port=console.port)).status in (400, 403)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_own_names_are_served(console: Console, name: str) -> None:
    assert console.get("/static/console.css", Host=f"{name}:{console.port}").status == 200


def test_other_sites_are_refused_and_may_link(console: Console) -> None:
    path, own = f"{console.base}/topics", f"http://localhost:{console.port}"

    assert console.get(path, Origin="https://evil.example").status == 403
    assert console.get(path, Origin="null").status == 403
    assert console.get(path, Origin=f"http://127.0.0.1:{console.port}").status == 403  # another origin than the Host's
    assert console.get(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script").status == 403
    assert console.get(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe").status == 403
    assert console.get(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document").status == 200
    assert console.get(path, Origin=own).status == 200
    assert console.ask("POST", path, body="").status == 403  # a change without an Origin


def test_answers_forbid_scripts_in_pages(console: Console) -> None:
    answer = console.get(f"{console.base}/topics")

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store" and answer.headers["x-content-type-options"] == "nosniff"
    assert "<style" not in answer.text and " style=" not in answer.text and answer.text.count("<script") == 1
