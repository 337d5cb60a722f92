// Package ocsf writes audit records as events of the Open Cybersecurity Schema Framework,
// version 1.8.0: an API Activity (6003) for the run, with the profile ai_operation, and a
// Network Activity (4001) for each row of its receipt, with the profile security_control. A
// decision about an approval is an API Activity, too.
//
//	for _, event := range ocsf.Events(entry.Place, record) {
//		err := json.NewEncoder(w).Encode(event)
//	}
//
// They are not signed; unmapped.audit says where the record is that is.
package ocsf

import (
	"encoding/json"
	"fmt"
	"time"

	"sallyport/executor/audit"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// Version is that of the schema.
const Version = "1.8.0"

// The classes, each with its category, and their activities.
const (
	application, apiActivity = 6, 6003
	network, networkActivity = 4, 4001

	create, update  = 1, 3 // of 6003
	refuse, traffic = 5, 6
)

// The values of other enumerations.
const (
	informational                = 1
	statusSuccess, statusFailure = 1, 2
	actionAllowed, actionDenied  = 1, 2
	allowed, blocked             = 1, 2 // disposition_id
	outbound                     = 2    // direction_id
)

// An Event is an event in JSON, by the names of the schema.
type Event map[string]any

// Events are those of a record, the run's first.
func Events(at audit.Place, r audit.Record) ([]Event, error) {
	var receipt account.Receipt
	if err := json.Unmarshal(r.Network.Receipt, &receipt); err != nil {
		return nil, fmt.Errorf("the receipt of the run %s: %w", r.Execution, err)
	}
	events := []Event{ofRun(at, r)}
	for _, h := range receipt.Hosts {
		events = append(events, ofHost(at, r, h))
	}
	return events, nil
}

// Decision is the event of a decision about an approval.
func Decision(at audit.Place, d audit.Decision) Event {
	e := base(at, application, apiActivity, update, d.Time, d.Approval, d.Tenant)
	e["status_id"] = statusSuccess
	e["actor"] = map[string]any{"user": map[string]any{"uid": d.Principal, "name": d.Principal}}
	e["src_endpoint"] = map[string]any{"name": d.Principal}
	e["api"] = map[string]any{
		"operation": "decideApproval", "service": map[string]any{"name": "sallyport"},
		"request": map[string]any{"uid": d.Approval, "data": d}, "response": map[string]any{"message": d.State},
	}
	e["resources"] = []map[string]any{{"type": d.Kind, "name": d.Name, "uid": d.Digest}}
	return e
}

// base is what all events have.
func base(at audit.Place, category, class, activity int, when time.Time, correlation, tenant string, profiles ...string) Event {
	metadata := map[string]any{
		"version": Version, "product": map[string]any{"name": "sallyport", "vendor_name": "sallyport"},
		"correlation_uid": correlation, "log_name": "audit", "sequence": at.Index,
	}
	if len(profiles) > 0 {
		metadata["profiles"] = profiles
	}
	if tenant != "" {
		metadata["tenant_uid"] = tenant
	}
	return Event{
		"category_uid": category, "class_uid": class, "activity_id": activity, "type_uid": class*100 + activity,
		"severity_id": informational, "time": when.UnixMilli(), "metadata": metadata, "unmapped": map[string]any{"audit": at},
	}
}

// during is base for what a record tells of, with the time that the run took.
func during(at audit.Place, r audit.Record, category, class, activity int, profile string) Event {
	e := base(at, category, class, activity, r.Outcome.Accepted, r.Execution, r.Tenant, profile)
	e["start_time"] = e["time"]
	if r.Outcome.Ended != nil {
		e["end_time"] = r.Outcome.Ended.UnixMilli()
	}
	return e
}

func ofRun(at audit.Place, r audit.Record) Event {
	e := during(at, r, application, apiActivity, create, "ai_operation")
	e["duration"] = r.Outcome.DurationMS
	e["status_id"] = statusFailure
	if r.Outcome.Success {
		e["status_id"] = statusSuccess
	}
	if r.Outcome.Code != "" {
		e["status_code"] = r.Outcome.Code
	}
	e["actor"] = map[string]any{"user": map[string]any{"uid": r.Principal, "name": r.Principal}}
	// The record does not say from which address the call came.
	e["src_endpoint"] = map[string]any{"name": r.Principal}
	e["dst_endpoint"] = map[string]any{"svc_name": "sallyport"}
	e["api"] = map[string]any{
		"operation": "executeAgent", "service": map[string]any{"name": "sallyport"},
		"request":  map[string]any{"uid": r.Execution, "data": map[string]any{"workflow": r.Workflow, "task": r.Task, "profile": r.Profile, "command": r.Command}},
		"response": response(r.Outcome),
	}
	e["resources"] = resources(r)
	if a := r.Agent; a.Model != "" {
		e["ai_model"] = map[string]any{"name": a.Model, "ai_provider": a.Provider}
		e["message_context"] = map[string]any{
			"ai_role_id": 4, "application": map[string]any{"name": a.Name}, "uid": a.Session,
			"prompt_tokens": a.InputTokens, "completion_tokens": a.OutputTokens, "total_tokens": a.InputTokens + a.OutputTokens,
		}
	}
	return e
}

func response(o audit.Outcome) map[string]any {
	said := map[string]any{"message": o.StopReason}
	if o.Code != "" {
		said["error"] = o.Code
	}
	if o.ExitCode != nil {
		said["code"] = *o.ExitCode
	}
	return said
}

// resources are what the run had and made: its sandbox, image and artifacts.
func resources(r audit.Record) []map[string]any {
	list := []map[string]any{{"type": "image", "name": r.Sandbox.Image, "uid": r.Sandbox.ImageDigest}}
	if r.Sandbox.ID != "" {
		list = append(list, map[string]any{"type": "sandbox", "name": r.Sandbox.Provider, "uid": r.Sandbox.ID})
	}
	for _, a := range r.Artifacts {
		list = append(list, map[string]any{"type": "artifact", "name": a.Name, "uid": a.SHA256})
	}
	return list
}

// ofHost is a row of the receipt. The receipt counts decisions that are alike, so its time
// is the run's.
func ofHost(at audit.Place, r audit.Record, h account.ReceiptHost) Event {
	activity, status, action, disposition := refuse, statusFailure, actionDenied, blocked
	if h.Verdict == firewall.Allow {
		activity, status, action, disposition = traffic, statusSuccess, actionAllowed, allowed
	}
	e := during(at, r, network, networkActivity, activity, "security_control")
	e["status_id"], e["status_detail"], e["action_id"], e["disposition_id"] = status, string(h.Reason), action, disposition
	e["count"], e["app_name"] = h.Count, string(h.Kind)
	e["policy"] = map[string]any{"name": r.Network.Policy, "uid": r.Network.Digest}
	source := map[string]any{"name": "sandbox"}
	if r.Sandbox.ID != "" {
		source["uid"] = r.Sandbox.ID
	}
	e["src_endpoint"] = source
	e["dst_endpoint"] = map[string]any{"hostname": h.Host, "port": h.Port}
	e["connection_info"] = map[string]any{"direction_id": outbound}
	e["traffic"] = map[string]any{"bytes": h.BytesUp + h.BytesDown, "bytes_out": h.BytesUp, "bytes_in": h.BytesDown}
	return e
}
