package review_test

import (
	"strings"
	"testing"

	"sallyport/firewall/allowlist"
	"sallyport/firewall/review"
)

func TestRedundant(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "groups: {g: [.a.example, b.example]}\npolicies: {p: {allow: [g, c.example]}}", ""},
		{"covered in a group", "groups:\n  g: [.a.example, www.a.example]\npolicies: {p: {allow: [g]}}",
			`f:3: groups.g[1]: "www.a.example" is allowed already by ".a.example" of group "g" on line 3: remove it`},
		{"covered by another group", "groups:\n  g: [.a.example]\n  h:\n    - www.a.example\npolicies: {p: {allow: [g, h]}}",
			`f:5: groups.h[0]: "www.a.example" is allowed already by ".a.example" of group "g" on line 3: remove it`},
		{"not by another group everywhere", "groups:\n  g: [.a.example]\n  h: [www.a.example]\npolicies: {p: {allow: [g, h]}, q: {allow: [h]}}", ""},
		{"the same in two groups", "groups:\n  g: [.a.example]\n  h:\n    - .A.example\npolicies: {p: {allow: [g, h]}}",
			`f:5: groups.h[0]: ".A.example" is allowed already by ".a.example" of group "g" on line 3: remove it`},
		{"own and group", "groups:\n  g: [.a.example]\npolicies:\n  p:\n    allow: [g, .a.example, x.a.example]",
			`f:6:16: policies.p.allow[1]: ".a.example" is allowed already by ".a.example" of group "g" on line 3: remove it` + "\n" +
				`f:6:28: policies.p.allow[2]: "x.a.example" is allowed already by ".a.example" on line 6: remove it`},
		{"inherited", "policies:\n  q: {allow: [a.example]}\n  p: {extends: q, allow: [a.example]}",
			`f:4:27: policies.p.allow[0]: "a.example" is allowed already by "a.example" on line 3: remove it`},
		{"back after its removal", "policies:\n  q: {allow: [.a.example]}\n  p: {extends: q, remove: [.a.example], allow: [x.a.example]}", ""},
		{"by any", "policies:\n  p: {allow: [any, a.example]}", `f:3:20: policies.p.allow[1]: "a.example" is allowed already by "any" on line 3: remove it`},
		{"a resolver needs its own", "policies: {p: {allow: [any, dns.google]}}", ""},
		{"other ports", "policies: {p: {allow: [.a.example, {host: x.a.example, ports: [80]}]}}", ""},
		{"two that cover the ports", "policies:\n  p: {allow: [{host: .b.a.example, ports: [80]}, .a.example, {host: x.b.a.example, ports: [80, 443]}]}",
			`f:3:62: policies.p.allow[2]: "x.b.a.example" is allowed already by ".a.example" on line 3: remove it`},
		{"private", "policies: {p: {allow: [.a.example, {host: x.a.example, private: [10.0.0.0/8]}]}}", ""},
		{"narrower private", "policies: {p: {allow: [{host: .a.example, private: [10.0.0.0/8]}, x.a.example]}}", ""},
		{"the policy's proxy", "policies:\n  p:\n    via: corp\n    allow: [.a.example, x.a.example, {host: y.a.example, via: corp}]",
			`f:5:25: policies.p.allow[1]: "x.a.example" is allowed already by ".a.example" on line 5: remove it` + "\n" +
				`f:5:38: policies.p.allow[2]: "y.a.example" is allowed already by ".a.example" on line 5: remove it`},
		{"no proxy", "policies: {p: {via: corp, allow: [.a.example, {host: x.a.example, via: none}]}}", ""},
		{"removals", "policies:\n  q: {allow: [.a.example]}\n  p:\n    extends: q\n    remove: [x.b.a.example, .b.a.example]",
			`f:6:14: policies.p.remove[0]: "x.b.a.example" goes with ".b.a.example", which the policy removes on line 6: remove this entry`},
		{"undone removal", "policies:\n  q: {allow: [.a.example]}\n  p: {extends: q, remove: [x.a.example], allow: [x.a.example]}",
			`f:4:28: policies.p.remove[0]: "x.a.example" is allowed again by the policy's own list on line 4`},
		{"budgets", "policies:\n  p: {allow: [.a.example], budgets: {upload: 1GB, hostUpload: 100MB, wildcardNames: 5}}", ""},
		{"budgets that nothing reaches", "policies:\n  q:\n    allow: [a.example]\n    budgets:\n      upload: 100MB\n      hostUpload: 100MB\n      wildcardBytes: 1kB\n" +
			"  p:\n    extends: q\n    budgets: {hostUpload: none, download: 1GB, hostDownload: 2GB, wildcardNames: none}\n" +
			"  r: {extends: q, allow: [.b.example], budgets: {upload: none, hostUpload: 100MB, wildcardNames: 5}}",
			`f:7:19: policies.q.budgets.hostUpload: 100MB is never reached: the upload of the whole run, 100MB, comes first` + "\n" +
				`f:8:22: policies.q.budgets.wildcardBytes: bounds the names below entries such as .example.com, and the policy has none` + "\n" +
				`f:11:62: policies.p.budgets.hostDownload: 2GB is never reached: the download of the whole run, 1GB, comes first`},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, err := allowlist.Parse(strings.NewReader("version: 1\n"+test.text+"\n"), "f")
			if err != nil {
				t.Fatal(err)
			}
			got := review.Redundant(file)
			if got.Error() != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
