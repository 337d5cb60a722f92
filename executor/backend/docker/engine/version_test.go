package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
)

// able is an engine that can do all that is needed.
func able() system.Info {
	return system.Info{
		OSType: "linux", MemoryLimit: true, SwapLimit: true, PidsLimit: true, CPUCfsQuota: true,
		SecurityOptions: []string{"name=apparmor", "name=seccomp,profile=default", "name=cgroupns"},
	}
}

func engine(version, api, runc string) types.Version {
	return types.Version{Version: version, APIVersion: api, Components: []types.ComponentVersion{
		{Name: "Engine", Version: version}, {Name: "runc", Version: runc},
	}}
}

func TestKnownEngines(t *testing.T) {
	for _, test := range []struct {
		engine, api, runc string
		warn, refuse      []string
	}{
		{"29.2.0", "1.53", "1.3.4", nil, nil},
		{"28.5.2", "1.51", "1.3.3", nil, nil},
		{"20.10.24+dfsg1", "1.41", "1.1.5+ds1", []string{"CVE-2024-29018", "CVE-2024-21626", "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"}, nil}, // Debian 12
		{"20.10.24", "1.41", "1.1.12", []string{"CVE-2024-29018", "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"}, nil},
		{"20.10.8", "1.41", "1.4.0", []string{"CVE-2024-29018", "CVE-2022-36109", "CVE-2021-41091"}, nil},
		{"23.0.11", "1.42", "1.4.0", nil, nil},
		{"24.0.9", "1.43", "1.4.0", []string{"CVE-2024-29018"}, nil},
		{"25.0.3", "1.44", "1.4.0", []string{"CVE-2024-29018", "moby#47822"}, nil},
		{"25.0.5", "1.44", "1.4.0", []string{"moby#47822"}, nil},
		{"26.1.2", "1.45", "1.4.0", []string{"moby#47822"}, nil},
		{"26.1.3", "1.45", "1.4.0", nil, nil},
		{"28.3.2", "1.51", "1.2.8", []string{"CVE-2025-54388"}, nil},
		{"29.1.0", "1.52", "1.4.0", []string{"moby#51614"}, nil},
		{"v29.1.1-rc.1", "1.52", "v1.4.0-rc.3", nil, nil},
		{"19.03.15", "1.40", "1.4.0", []string{"CVE-2024-29018", "CVE-2022-36109", "CVE-2021-41091"}, []string{"api"}},
		// A version that says nothing is suspected of everything.
		{"dev", "1.51", "1.4.0", []string{
			"CVE-2024-29018", "moby#47822", "moby#51614", "CVE-2025-54388", "CVE-2022-36109", "CVE-2021-41091"}, nil},
		{"29.2.0", "", "1.4.0", nil, []string{"api"}},
	} {
		r := judge(engine(test.engine, test.api, test.runc), able(), false)
		if got := ids(r, Warn); !slices.Equal(got, test.warn) {
			t.Errorf("%s: warns of %q, want %q", r, got, test.warn)
		}
		if got := ids(r, Refuse); !slices.Equal(got, test.refuse) {
			t.Errorf("%s: refuses for %q, want %q", r, got, test.refuse)
		}
		if (r.Err() != nil) != (len(test.refuse) > 0) {
			t.Errorf("%s: error %v", r, r.Err())
		}
	}
}

func ids(r Report, v Verdict) []string {
	var out []string
	for _, f := range r.Findings {
		if f.Verdict == v {
			out = append(out, f.ID)
		}
	}
	return out
}

func TestUnableEngines(t *testing.T) {
	for want, change := range map[string]func(*system.Info){
		"os":           func(i *system.Info) { i.OSType = "windows" },
		"seccomp":      func(i *system.Info) { i.SecurityOptions = nil },
		"rootless":     func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=rootless") },
		"userns-remap": func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=userns") },
		"memory":       func(i *system.Info) { i.MemoryLimit = false },
		"pids":         func(i *system.Info) { i.PidsLimit = false },
		"cpu":          func(i *system.Info) { i.CPUCfsQuota = false },
	} {
		info := able()
		change(&info)
		r := judge(engine("29.2.0", "1.53", "1.4.0"), info, false)
		if got := ids(r, Refuse); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: refuses for %q", want, got)
		}
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), want+": ") {
			t.Errorf("%s: error %v", want, err)
		}
	}
	info := able()
	info.SwapLimit = false
	if r := judge(engine("29.2.0", "1.53", "1.4.0"), info, false); !slices.Equal(ids(r, Warn), []string{"swap"}) || r.Err() != nil {
		t.Errorf("swap: %+v", r)
	}
	info = able()
	info.CgroupVersion = "1"
	if r := judge(engine("29.2.0", "1.53", "1.4.0"), info, false); !slices.Equal(ids(r, Warn), []string{"tcp-memory"}) || r.Err() != nil {
		t.Errorf("memory of TCP: %+v", r)
	}
	if r := judge(engine("29.2.0", "1.53", "1.4.0"), info, true); len(r.Findings) != 0 {
		t.Errorf("control: %+v", r)
	}
}

func TestDefectsAreDocumented(t *testing.T) {
	for _, d := range defects {
		if d.text == "" || !strings.HasPrefix(d.source, "https://") || len(d.ranges) == 0 || d.verdict != Warn && d.verdict != Refuse {
			t.Errorf("%s: %+v", d.id, d)
		}
		for _, r := range d.ranges {
			if _, ok := parseVersion(r.before); !ok {
				t.Errorf("%s: range %+v", d.id, r)
			}
			if _, ok := parseVersion(r.from); r.from != "" && !ok {
				t.Errorf("%s: range %+v", d.id, r)
			}
		}
	}
}
