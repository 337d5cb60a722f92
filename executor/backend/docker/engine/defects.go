package engine

// A defect is something known against a range of versions of a component.
type defect struct {
	id        string // of the advisory or the issue
	component string // engine or runc
	// The affected versions: from (inclusive; empty for all) up to before
	// (exclusive). A fix in several lines is several ranges.
	ranges  []versionRange
	verdict Verdict
	text    string // what it means here, and what to do
	source  string
}

type versionRange struct{ from, before string }

// defects are the known ones that bear on what this package relies on. Refused is
// only what would make its boundary untrue; for what the boundary's own walls (the
// cell's filter, no capabilities, no root) stand in front of, a warning.
// Distributions fix defects without a new version number, so a version alone can
// only accuse: the texts say so.
var defects = []defect{
	{
		id: "CVE-2024-29018", component: componentEngine, verdict: Warn,
		ranges: []versionRange{{"", "23.0.11"}, {"24.0.0", "25.0.5"}},
		text: "the embedded resolver forwards names from internal networks. The filter of every cell refuses 127.0.0.11, " +
			"and the boundary check proves it; upgrade to 23.0.11, 25.0.5 or 26.0.0 for the second wall",
		source: "https://github.com/moby/moby/security/advisories/GHSA-mq39-4gv4-mvpx",
	},
	{
		id: "moby#47822", component: componentEngine, verdict: Warn,
		ranges: []versionRange{{"25.0.0", "26.1.3"}},
		text: "the embedded resolver does not reach a DNS server inside an internal network. Sandboxes ask the gate " +
			"directly and do not need it",
		source: "https://github.com/moby/moby/issues/47822",
	},
	{
		id: "moby#51614", component: componentEngine, verdict: Warn,
		ranges: []versionRange{{"29.1.0", "29.1.1"}},
		text: "the embedded resolver answers nothing, so the gate cannot resolve through the system's resolver: upgrade, " +
			"or name resolvers to the gate",
		source: "https://github.com/moby/moby/issues/51614",
	},
	{
		id: "CVE-2025-54388", component: componentEngine, verdict: Warn,
		ranges: []versionRange{{"28.2.0", "28.3.3"}},
		text: "after a reload of firewalld, ports published on loopback (the executor's API) are open to the local " +
			"network: upgrade to 28.3.3 if the host runs firewalld",
		source: "https://github.com/moby/moby/security/advisories/GHSA-x4rx-4gw3-53p4",
	},
	{
		id: "CVE-2022-36109", component: componentEngine, verdict: Warn,
		ranges: []versionRange{{"", "20.10.18"}},
		text: "supplementary groups are not set up as they should be, which can pass group-denying permissions: " +
			"upgrade to 20.10.18",
		source: "https://github.com/moby/moby/security/advisories/GHSA-rc4r-wh2q-q6c4",
	},
	{
		id: "CVE-2021-41091", component: componentEngine, verdict: Warn,
		ranges: []versionRange{{"", "20.10.9"}},
		text:   "other users of the host can enter the engine's data directory: upgrade to 20.10.9",
		source: "https://nvd.nist.gov/vuln/detail/CVE-2021-41091",
	},
	{
		id: "CVE-2024-21626", component: componentRunc, verdict: Warn,
		ranges: []versionRange{{"", "1.1.12"}},
		text: "a leaked descriptor of the host's file system, reached by a working directory of the caller's choice or " +
			"by exec. Sandboxes start in a fixed directory and nothing is ever executed into them; upgrade to runc " +
			"1.1.12 unless the distribution has fixed its own",
		source: "https://github.com/opencontainers/runc/security/advisories/GHSA-xr7r-f8xq-vfvv",
	},
	{
		id: "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", component: componentRunc, verdict: Warn,
		ranges: []versionRange{{"", "1.2.8"}, {"1.3.0", "1.3.3"}},
		text: "masked paths can be raced by containers that start together and share mounts. Sandboxes share none " +
			"and do not choose theirs; upgrade to runc 1.2.8, 1.3.3 or 1.4.0 unless the distribution has fixed its own",
		source: "https://github.com/opencontainers/runc/security/advisories/GHSA-9493-h29p-rfm2",
	},
}
