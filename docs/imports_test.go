package docs_test

import (
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// allowed lists, for each package that others build on, which of our own
// packages it may import. A package that is not listed may import any of them,
// but nobody may import a command, or what is below one, from elsewhere. The packages of internal that import nothing of
// ours are as good as a library to those that do import them: they know nothing of
// what sallyport is, so they turn no direction round.
var allowed = map[string][]string{
	"firewall":                 {"firewall/budget", "firewall/hosts"},
	"firewall/budget":          {},
	"firewall/hosts":           {},
	"firewall/account":         {"firewall", "firewall/budget"},
	"firewall/allowlist":       {"firewall", "firewall/budget", "firewall/hosts", "internal/strictyaml"},
	"firewall/review":          {"firewall", "firewall/account", "firewall/allowlist", "firewall/budget", "firewall/hosts", "internal/strictyaml"},
	"firewall/allowlist/patch": {"firewall", "firewall/allowlist", "firewall/hosts", "firewall/review"},

	"githubauth":                {"githubauth/plain", "githubauth/rest", "githubauth/scope"},
	"githubauth/scope":          {"githubauth/plain", "internal/strictyaml"},
	"githubauth/rest":           {"githubauth/plain"},
	"githubauth/plain":          {},
	"githubauth/githubtest":     {},
	"gate/control":              {"firewall", "firewall/account"},
	"cell":                      {},
	"entrypoint/wire":           {},
	"entrypoint/pid1":           {"entrypoint/wire", "entrypoint/pid1/artifacts", "entrypoint/pid1/files"},
	"entrypoint/pid1/artifacts": {"entrypoint/wire"},
	"entrypoint/pid1/files":     {"entrypoint/wire"},
	"entrypoint/probe":          {},
	"entrypoint/github":         {"entrypoint/wire"},
	"executor/api":              {"firewall", "firewall/account"},
	"executor/client":           {"firewall", "firewall/account", "executor/api"},
	"executor/approval":         {"executor/api", "executor/caller"},
	"executor/webhook":          {"firewall"},
	"executor/audit":            {"internal/fileowner"},
	"executor/audit/ocsf":       {"firewall", "firewall/account", "executor/audit"},
	"executor/archive":          {"executor/audit", "executor/state", "executor/statedir"},
	"executor/state":            {},
	"executor/caller":           {"internal/fileowner"},
	"executor/redact":           {},
	"executor/secrets":          {"executor/redact", "internal/fileowner"},
	"executor/sessionlog":       {"firewall", "firewall/account", "executor/api", "internal/fileowner"},
	"executor/agent":            {"firewall", "entrypoint/wire", "entrypoint/github", "executor/api"},
	"executor/telemetry":        {"firewall", "firewall/account", "executor/api", "executor/audit"},
	"executor/tokens":           {"githubauth", "githubauth/scope"},
	"executor/tree":             {},
	"executor/backend":          {"executor/api"},
	"executor/policy":           {"firewall", "firewall/allowlist", "executor/api", "internal/strictyaml"},
	"executor/queue":            {"executor/tree"},
	"executor/place":            {"entrypoint/wire", "executor/api", "executor/backend", "executor/tree"},
	"executor/proof":            {"executor/api", "executor/backend"},
	"executor/statedir":         {"executor/tree"},

	"executor/backend/docker/engine": {"executor/backend"},
	"executor/backend/docker/cells":  {"executor/backend", "executor/backend/docker/engine"},
	"executor/backend/docker":        {"executor/backend", "executor/backend/docker/engine"},

	"gate/decisionlog": {"firewall", "firewall/account", "gate/control"},
	"gate/listener":    {"sniproxy/socket"},
	"gate/metrics":     {"firewall", "firewall/account", "sniproxy/resolve"},
	"gate/page":        {"firewall", "firewall/account", "firewall/allowlist"},
	"gate/settings":    {"sniproxy/reach", "sniproxy/resolve", "internal/envvars"},
	"gate/watch":       {"firewall/allowlist"},
	"gate":             {"firewall", "firewall/account", "firewall/allowlist", "dnsgate", "sniproxy", "sniproxy/forward", "sniproxy/admission", "sniproxy/reach", "sniproxy/resolve", "sniproxy/socket", "gate/control", "gate/decisionlog", "gate/listener", "gate/metrics", "gate/page", "gate/settings", "gate/watch", "internal/contain"},

	"dnsgate":            {"firewall", "firewall/account", "internal/contain", "internal/evloop"},
	"sniproxy/resolve":   {"firewall", "internal/contain"},
	"sniproxy/socket":    {},
	"sniproxy/refusal":   {"firewall", "internal/contain"},
	"sniproxy/reach":     {"firewall", "internal/contain", "internal/evloop", "sniproxy/refusal", "sniproxy/resolve", "sniproxy/socket"},
	"sniproxy/admission": {"firewall", "firewall/account", "internal/contain", "internal/evloop", "sniproxy/refusal", "sniproxy/socket"},
	"sniproxy/tunnel":    {"firewall", "firewall/account", "internal/contain", "internal/evloop", "sniproxy/admission", "sniproxy/reach", "sniproxy/refusal", "sniproxy/socket"},
	"sniproxy/forward":   {"firewall", "firewall/account", "internal/contain", "sniproxy/admission", "sniproxy/reach", "sniproxy/refusal", "sniproxy/socket"},
	"sniproxy":           {"sniproxy/admission", "sniproxy/forward", "sniproxy/reach", "sniproxy/tunnel"},
	"sniproxy/testnet":   {"firewall", "sniproxy/socket"},
	"sniproxy/testcell":  {"firewall", "firewall/account", "firewall/allowlist", "sniproxy/admission", "sniproxy/reach", "sniproxy/socket", "sniproxy/testnet"},

	// What GitHub checks is written down once more there, not taken from what it shall check.
	"compose/internet/github": {},
	"internal/contain":        {},
	"internal/envvars":        {},
	"internal/fileowner":      {},
	"internal/evloop":         {"internal/contain"},
	"internal/probes":         {},
	"internal/output":         {},
	"internal/strictyaml":     {},
	"internal/version":        {},
	"internal/wallclock":      {},
}

func TestImportDirection(t *testing.T) {
	for dir, pkg := range packages(t) {
		for _, imp := range pkg.Imports {
			ours, ok := strings.CutPrefix(imp, "sallyport/")
			if !ok {
				continue
			}
			if parts := strings.Split(ours, "/"); parts[0] == "cmd" && !strings.HasPrefix(dir+"/", "cmd/"+parts[1]+"/") {
				t.Errorf("%s imports the command %s", dir, ours)
			}
			if may, listed := allowed[dir]; listed && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s; it may import %v only", dir, ours, may)
			}
		}
	}
	for dir := range allowed {
		if _, err := build.ImportDir(dir, 0); err != nil {
			t.Errorf("the list of import directions names %s: %v", dir, err)
		}
	}
}

func TestPackageComments(t *testing.T) {
	for dir, pkg := range packages(t) {
		var comments int
		for _, file := range pkg.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
				want := "Package " + pkg.Name + " "
				if pkg.Name == "main" {
					want = "Command " + filepath.Base(dir) + " "
				}
				if !strings.HasPrefix(f.Doc.Text(), want) {
					t.Errorf("%s/%s: the package comment does not begin with %q", dir, file, want)
				}
			}
		}
		if comments != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, comments)
		}
	}
}

// packages returns every package of the repository by its directory, those of modules
// of their own included.
func packages(t *testing.T) map[string]*build.Package {
	t.Helper()
	found := map[string]*build.Package{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
			return filepath.SkipDir
		}
		if pkg, err := build.ImportDir(path, 0); err == nil && len(pkg.GoFiles) > 0 {
			found[filepath.ToSlash(path)] = pkg
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 8 {
		t.Fatalf("found only %d packages: is the test run from the module's root?", len(found))
	}
	return found
}
