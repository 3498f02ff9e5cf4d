"""Credentials never get into files that others can read (G-09)."""

import re

import pytest
from easybuild.easyblocks.generic.container import framework
from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.tools.build_log import EasyBuildError

SECRET = "S3cr3tPw"
TOKEN = "ghp_S3cr3tPw0123456789012345678901234567"


@pytest.mark.parametrize(
    "properties",
    [
        {"requirements": f"--extra-index-url http://bob:{SECRET}@host/simple"},
        {"requirements": [f"x @ git+https://{TOKEN}@github.com/a/x.git@v1"]},
        {"requirements": f"x @ git+https://oauth2:{SECRET}@host/x.git"},
        {"requirements": f"-i https://bob:{SECRET}@{SECRET}@host/simple"},
        {"requirements": f"--find-links=ftp://bob:{SECRET}@host/"},
        {"requirements": f"https://host/x-1.0-py3-none-any.whl?private_token={SECRET}"},
        {"requirements": f"https://host/x-1.0-py3-none-any.whl?a=b&sig={SECRET}"},
        {"requirements": f"# by hand: -i https://bob:{SECRET}@host\nx"},
        {"index_url": f"https://bob:{SECRET}@host:8080/simple"},
        {"extra_index_url": ["https://host", f"https://{TOKEN}:@host/simple"]},
        {"find_links": [f"https://bob:{SECRET}@host/"]},
        {"options": ["--pre", "--proxy", f"bob:{SECRET}@host:3128"]},
        {"options": [f"--index-url=https://bob:{SECRET}@host"]},
        {"env": {"HF_TOKEN": SECRET}},
        {"env": {"PGPASSWORD": SECRET}},
        {"env": {"WANDB_API_KEY": SECRET}},
        {"env": {"AWS_SECRET_ACCESS_KEY": SECRET}},
        {"env": {"SOURCE": f"https://bob:{SECRET}@host"}},
        {"pre": [f"git clone https://bob:{SECRET}@host/x"]},
        {"post": [["huggingface-cli", "login", "--token", SECRET]]},
        {"post": [["x", "--my-api-key", SECRET]]},
        {"verify": [f"x --hf-hub-token={SECRET}"]},
        {"post": [f"x --password 123456 --eos-secret {SECRET}"]},
        {"env": {"TOKEN": "1234567890"}, "pre": [f"x --maximum-token {SECRET}"]},
        {"verify": [f"export HF_TOKEN='{SECRET}'; python x.py"]},
    ],
)
def test_credentials_in_stages_are_refused(properties):
    """G-09: wherever they are; the error does not repeat them, and says what to do."""
    with pytest.raises(EasyBuildError) as error:
        PipStage.from_parameter([properties])
    assert "a credential is written out" in str(error.value)
    assert "PIP_CONFIG_FILE" in str(error.value)
    assert "S3cr3t" not in str(error.value)
    assert "S3cr3t" not in Credentials.mask({**properties, "env": {}})
    assert not re.search("1234", str(error.value) + Credentials.mask({**properties, "env": {}}))


@pytest.mark.parametrize(
    "properties",
    [
        {"requirements": "--extra-index-url https://${PUSER}:${PPW}@host/simple"},
        {"requirements": "x @ git+ssh://git@github.com/a/x.git@main"},
        {"requirements": "x @ git+https://${TOKEN}@github.com/a/x.git"},
        {"requirements": "x @ https://host:8443/x@1.0/x-1.0.tar.gz\ntokenizers==0.15\nmy-token==1.0 # secret=yes"},
        {"requirements": "https://bob@host/x-1.0-py3-none-any.whl"},
        {"requirements": "y @ file:///home/user@realm:1/y.whl --hash=sha256:0123456789abcdef0123456789abcdef"},
        {"env": {"TOKENIZERS_PARALLELISM": "false", "HF_TOKEN_PATH": "/a/b", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}},
        {"verify": ["python -c 'f(use_token=True); token = g()'", 'curl -H "$AUTH" --token "$HF_TOKEN" x']},
        {"env": {"TOKEN": "4096", "MAX_TOKEN": "100000", "EOS_TOKEN": "[SEP]"}},
        {"post": ["TOKEN=4096 x --max-token 100000"]},
        {"verify": [["x", "--max-new-token=2048", "--token", "7", "--pad-token", "[PAD]", "--eos-token=</s>"]]},
        {"pre": ["HF_TOKEN=$(cat ~/token) git clone https://bob:$PW@host/x", ["echo", "user@host:8080"]]},
    ],
)
def test_values_that_are_no_credentials(properties):
    """Names, variables, ports and versions are not treated as credentials."""
    assert PipStage.from_parameter([properties])
    assert Credentials.mask(properties) == str(properties)


def test_variables_of_an_environment():
    """Recognized by name or by value."""
    environment = {
        "PIP_EXTRA_INDEX_URL": f"https://bob:{SECRET}@host",
        "http_proxy": f"http://a:{SECRET}@proxy:80",
        "HF_TOKEN": SECRET,
        "HOME": "/home/bob",
        "PIP_INDEX_URL": "https://host/simple",
    }
    assert sorted(Credentials.find_variables(environment)) == ["HF_TOKEN", "PIP_EXTRA_INDEX_URL", "http_proxy"]


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("GITHUB_PAT", True),
        ("MYSQL_PWD", True),
        ("SSHPASS", True),
        ("LDAP_BINDPW", True),
        ("CI_JOB_JWT", True),
        ("SLACK_WEBHOOK", True),
        ("SLACK_WEBHOOK_URL", True),
        ("SESSION_COOKIE", True),
        ("PWD", False),
        ("OLDPWD", False),
        ("HF_TOKEN_PATH", False),
        ("SPACK_COMPAT", False),
        ("TOKENIZERS_PARALLELISM", False),
    ],
)
def test_names_of_variables(name, is_known):
    """Variables of this kind are kept out of EasyBuild's report, which everybody can read."""
    assert Credentials.find_variables({name: f"/home/me/{SECRET}"}) == ([name] if is_known else [])


@pytest.mark.parametrize("own", [None, re.compile("^MINE$")])
def test_what_reports_leave_out(own, monkeypatch):
    """G-09, C-02: what one easyconfig names isn't left out for the next one, and the caller's own setting stays."""
    options = {"test_report_env_filter": own}
    monkeypatch.setattr(framework, "build_option", options.get)
    monkeypatch.setattr(framework, "update_build_option", options.__setitem__)
    monkeypatch.setattr(framework, "REPORT_FILTER", [])
    before = ["^MINE$"] if own else []
    for names in (["A_B", "A.B", "A_B"], ["C"]):
        framework.keep_out_of_report(names)
        expected = before + [f"^{re.escape(name)}$" for name in sorted(set(names))]
        assert options["test_report_env_filter"].pattern == "|".join(expected)
    framework.keep_out_of_report([])
    assert options["test_report_env_filter"] == own
