package scope

import (
	"maps"
	"slices"
)

// Where a permission reaches.
const (
	ofRepository   = ""             // the repositories that a token is limited to
	ofOrganization = "organization" // all of the owner's organization
	ofAccount      = "account"      // the user who authorized the App
	ofEnterprise   = "enterprise"
)

// A permission is what GitHub knows of one.
type permission struct {
	levels []string
	reach  string
	// risk says what write lets an agent do that is more than it sounds. It is told of
	// an operator's own profiles; of the built-in ones docs/github.md tells it.
	risk string
}

var (
	readWrite = []string{Read, Write}
	readOnly  = []string{Read}
	writeOnly = []string{Write}
	upToAdmin = []string{Read, Write, Admin}
)

// knownPermissions are those of GitHub's REST reference (app-permissions in its
// OpenAPI description), with discussions and merge_queues, which it leaves out and
// GitHub Apps have.
var knownPermissions = map[string]permission{
	"actions":                      {levels: readWrite, risk: "starts, cancels and approves workflow runs"},
	"administration":               {levels: readWrite, risk: "deletes repositories, adds collaborators and lifts branch protection"},
	"artifact_metadata":            {levels: readWrite},
	"attestations":                 {levels: readWrite, risk: "vouches for where an artifact comes from"},
	"checks":                       {levels: readWrite, risk: "reports checks as passed"},
	"codespaces":                   {levels: readWrite, risk: "starts machines that hold the repository's secrets"},
	"contents":                     {levels: readWrite, risk: "changes what existing workflows run, and starts those that wait for a dispatch, with the repository's secrets"},
	"dependabot_secrets":           {levels: readWrite, risk: "sets secrets that Dependabot runs use"},
	"deployments":                  {levels: readWrite, risk: "starts deployments"},
	"discussions":                  {levels: readWrite},
	"environments":                 {levels: readWrite, risk: "lifts the protection of environments that deployments wait for"},
	"issues":                       {levels: readWrite},
	"merge_queues":                 {levels: readWrite},
	"metadata":                     {levels: readWrite},
	"packages":                     {levels: readWrite, risk: "publishes packages that others install"},
	"pages":                        {levels: readWrite, risk: "publishes a website, readable by anyone"},
	"pull_requests":                {levels: readWrite},
	"repository_custom_properties": {levels: readWrite},
	"repository_hooks":             {levels: readWrite, risk: "has GitHub send every event to a host of the agent's choice"},
	"repository_projects":          {levels: upToAdmin},
	"secret_scanning_alerts":       {levels: readWrite, risk: "closes alerts, and reads the secrets that were found"},
	"secrets":                      {levels: readWrite, risk: "sets secrets that workflows use"},
	"security_events":              {levels: readWrite, risk: "dismisses alerts"},
	"single_file":                  {levels: readWrite},
	"statuses":                     {levels: readWrite, risk: "reports checks as passed"},
	"vulnerability_alerts":         {levels: readWrite, risk: "dismisses alerts"},
	"workflows":                    {levels: writeOnly, risk: "together with contents it runs code of the agent's in GitHub Actions, with the repository's secrets"},

	"custom_properties_for_organizations":         {levels: readWrite, reach: ofOrganization},
	"members":                                     {levels: readWrite, reach: ofOrganization},
	"organization_administration":                 {levels: readWrite, reach: ofOrganization},
	"organization_announcement_banners":           {levels: readWrite, reach: ofOrganization},
	"organization_copilot_agent_settings":         {levels: readWrite, reach: ofOrganization},
	"organization_copilot_seat_management":        {levels: writeOnly, reach: ofOrganization},
	"organization_custom_org_roles":               {levels: readWrite, reach: ofOrganization},
	"organization_custom_properties":              {levels: upToAdmin, reach: ofOrganization},
	"organization_custom_roles":                   {levels: readWrite, reach: ofOrganization},
	"organization_events":                         {levels: readOnly, reach: ofOrganization},
	"organization_hooks":                          {levels: readWrite, reach: ofOrganization},
	"organization_packages":                       {levels: readWrite, reach: ofOrganization},
	"organization_personal_access_token_requests": {levels: readWrite, reach: ofOrganization},
	"organization_personal_access_tokens":         {levels: readWrite, reach: ofOrganization},
	"organization_plan":                           {levels: readOnly, reach: ofOrganization},
	"organization_projects":                       {levels: upToAdmin, reach: ofOrganization},
	"organization_secrets":                        {levels: readWrite, reach: ofOrganization},
	"organization_self_hosted_runners":            {levels: readWrite, reach: ofOrganization},
	"organization_user_blocking":                  {levels: readWrite, reach: ofOrganization},
	"team_discussions":                            {levels: readWrite, reach: ofOrganization},

	"email_addresses":    {levels: readWrite, reach: ofAccount},
	"followers":          {levels: readWrite, reach: ofAccount},
	"git_ssh_keys":       {levels: readWrite, reach: ofAccount},
	"gpg_keys":           {levels: readWrite, reach: ofAccount},
	"interaction_limits": {levels: readWrite, reach: ofAccount},
	"profile":            {levels: writeOnly, reach: ofAccount},
	"starring":           {levels: readWrite, reach: ofAccount},

	"enterprise_custom_properties_for_organizations": {levels: upToAdmin, reach: ofEnterprise},
}

func permissionNames() []string { return slices.Sorted(maps.Keys(knownPermissions)) }
