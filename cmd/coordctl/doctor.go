package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newDoctorCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the cluster, or with the use of a lock",
		Long: `Ask every server of the endpoints how it is, and say what somebody should look
at: the quorum and the members, whether the states of the servers differ, the room
on their disks, how far an upgrade has come, and whether their clocks agree.

A PROBLEM needs somebody now; a NOTICE does not. The last line names what was
looked at and found well. What could not be asked is not called well.

Exit code: 0 there is no PROBLEM, 8 there is one, 6 no server answers.`,
		Example: "  coordctl doctor\n  coordctl doctor --json | jq -r '.findings[] | select(.severity == \"PROBLEM\") | .text'\n" +
			"  coordctl doctor lock /locks/nightly-report",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.doctor(cmd.Context()) },
	}
	cmd.AddCommand(newDoctorLockCmd(e))
	return cmd
}

// Severities of what the doctor finds.
const (
	severityProblem = "PROBLEM" // needs somebody now
	severityNotice  = "NOTICE"
)

// The doctor's checks, in the order in which they are reported.
const (
	checkQuorum   = "quorum"
	checkServers  = "servers"
	checkStates   = "states"
	checkDisks    = "disks"
	checkVersions = "versions"
	checkClocks   = "clocks"
)

var doctorChecks = []string{checkQuorum, checkServers, checkStates, checkDisks, checkVersions, checkClocks}

// symptom is one thing that somebody should look at.
type symptom struct {
	Severity string `json:"severity"` // PROBLEM or NOTICE
	Check    string `json:"check"`
	Text     string `json:"text"`
	Try      string `json:"try,omitempty"` // the command that shows more
}

// examination is what the doctor has found, as scripts see it.
type examination struct {
	Findings []symptom `json:"findings"`
	// OK are the checks that have found nothing and could ask everybody.
	OK []string `json:"ok"`
	// Details say more about checks, for people.
	details map[string]string
	// unsure are checks that could not ask whom they had to.
	unsure map[string]bool
}

func (e *env) doctor(ctx context.Context) error {
	all, err := e.askAll(ctx, e.timeout)
	if err != nil {
		return err
	}
	if err := unreachable("doctor", all); err != nil {
		return e.unmask(err)
	}
	x := examine(all)
	if err := e.object("Doctor", x, x.print); err != nil {
		return err
	}
	if slices.ContainsFunc(x.Findings, func(s symptom) bool { return s.Severity == severityProblem }) {
		return errUnhealthy
	}
	return nil
}

// examine judges what the servers have said; at least one has.
func examine(all []serverStatus) *examination {
	x := &examination{Findings: []symptom{}, OK: []string{}, details: map[string]string{}, unsure: map[string]bool{}}
	st := statusOf(all)
	x.quorum(st)
	x.servers(st)
	x.states(st, all)
	x.disks(st)
	x.versions(st)
	x.clocks(st, all)
	for _, c := range doctorChecks {
		if !x.unsure[c] && !slices.ContainsFunc(x.Findings, func(s symptom) bool { return s.Check == c }) {
			x.OK = append(x.OK, c)
		}
	}
	slices.SortStableFunc(x.Findings, func(a, b symptom) int { return cmp.Compare(rank(a), rank(b)) })
	return x
}

func rank(s symptom) int {
	if s.Severity == severityProblem {
		return 0
	}
	return 1
}

func (x *examination) problem(check, try, format string, args ...any) {
	x.Findings = append(x.Findings, symptom{severityProblem, check, fmt.Sprintf(format, args...), try})
}

func (x *examination) notice(check, try, format string, args ...any) {
	x.Findings = append(x.Findings, symptom{severityNotice, check, fmt.Sprintf(format, args...), try})
}

// quorum says whether there is a majority, and how many it may lose.
func (x *examination) quorum(st *clusterStatus) {
	voters, good := st.voters()
	need := voters/2 + 1
	spare := good - need
	switch {
	case st.Waiting != "":
		x.problem(checkQuorum, "", "the cluster is not formed: %s", st.Waiting)
	case st.Leader == "":
		x.problem(checkQuorum, "coordctl status", "no leader: writes and normal reads wait")
	case st.View != "":
		x.problem(checkQuorum, "coordctl status", "the leader %s gives no answer: what is said of the other servers is what %s knows, and may be old", st.Leader, st.View)
	case voters == 1:
		x.notice(checkQuorum, "", "there is one voter: without %s there is no cluster", st.Leader)
	case spare <= 0 && good < voters:
		x.problem(checkQuorum, "coordctl members", "%d of %d voters are in contact, %d are needed: none may be lost", good, voters, need)
	case voters%2 == 0:
		x.notice(checkQuorum, "coordctl members", "%d voters can lose no more than %d can", voters, voters-1)
	default:
		x.details[checkQuorum] = fmt.Sprintf("%d of %d voters, can lose %d", good, voters, spare)
	}
}

// servers says who is not as he should be.
func (x *examination) servers(st *clusterStatus) {
	x.unsure[checkServers] = st.View != "" || len(st.Servers) == 0
	for i := range st.Servers {
		m := &st.Servers[i]
		detail := ""
		if m.Detail != "" {
			detail = ": " + m.Detail
		}
		switch {
		case m.Disk.short() && m.InContact: // the disks' affair
		case m.Role == "joining" && m.InContact && m.Ready:
			x.notice(checkServers, "coordctl members", "%s has no vote yet%s", m.Name, detail)
		case m.Role == "missing":
			x.problem(checkServers, "coordctl members", "%s is in the list of peers and not in the cluster%s", m.Name, detail)
		case m.State == stateUnknown:
			x.unsure[checkServers] = true
		case !m.ok():
			x.problem(checkServers, "coordctl members", "%s is %s%s", m.Name, m.State, detail)
		}
	}
	for _, endpoint := range slices.Sorted(maps.Keys(st.Unreachable)) {
		if !slices.ContainsFunc(st.Servers, func(m memberItem) bool { return m.GRPC == endpoint && !m.InContact }) {
			x.problem(checkServers, "", "endpoint %s does not answer: %s", endpoint, st.Unreachable[endpoint])
		}
	}
}

// states reports the alarm of any server: what the digests say is known to a
// server until it hears otherwise from a leader.
func (x *examination) states(st *clusterStatus, all []serverStatus) {
	x.unsure[checkStates] = st.View != "" || st.Leader == ""
	said := map[string]bool{}
	for _, s := range all {
		if alarm := s.reply.GetAlarm(); alarm != "" && !said[alarm] {
			said[alarm] = true
			x.problem(checkStates, "see 'When a server refuses to start' in docs/ops.md",
				"%s; snapshots and changes of the membership are refused", alarm)
		}
	}
}

func (x *examination) disks(st *clusterStatus) {
	for i := range st.Servers {
		m := &st.Servers[i]
		switch d := m.Disk; {
		case !m.InContact || d == nil:
			x.unsure[checkDisks] = true
		case d.short():
			x.problem(checkDisks, "coordctl status", "%s is %s: %s", m.Name, m.State, m.Detail)
		case d.Trouble != "":
			x.problem(checkDisks, "coordctl status", "%s", m.diskNote())
		case m.diskNote() != "":
			x.notice(checkDisks, "coordctl status", "%s", m.diskNote())
		}
	}
}

// versions says how far an upgrade has come.
func (x *examination) versions(st *clusterStatus) {
	runs := map[string][]string{}
	common := uint32(0)
	for i := range st.Servers {
		m := &st.Servers[i]
		if !m.InContact || m.level == 0 {
			x.unsure[checkVersions] = true
			continue
		}
		runs[m.Version] = append(runs[m.Version], m.Name)
		if common == 0 || m.level < common {
			common = m.level
		}
	}
	switch {
	case len(runs) > 1:
		x.notice(checkVersions, "coordctl cluster upgrade --dry-run", "an upgrade is under way: %s", describeRuns(runs))
	case x.unsure[checkVersions] || st.level == 0:
	case common > st.level:
		x.notice(checkVersions, "coordctl cluster upgrade", "all servers know feature level %d, the cluster is at %d", common, st.level)
	default:
		x.details[checkVersions] = fmt.Sprintf("feature level %d", st.level)
	}
}

func describeRuns(runs map[string][]string) string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(runs)) {
		verb := "runs"
		if len(runs[v]) > 1 {
			verb = "run"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", strings.Join(runs[v], ", "), verb, cmp.Or(v, "an unnamed version")))
	}
	return strings.Join(parts, "; ")
}

func (x *examination) print(w io.Writer) error {
	for _, s := range x.Findings {
		line := fmt.Sprintf("%-7s  %s", s.Severity, oneLine(s.Text))
		if s.Try != "" {
			line += "  [" + s.Try + "]"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if len(x.OK) == 0 {
		return nil
	}
	well := make([]string, 0, len(x.OK))
	for _, c := range x.OK {
		if d := x.details[c]; d != "" {
			c += " (" + d + ")"
		}
		well = append(well, c)
	}
	_, err := fmt.Fprintf(w, "%-7s  %s\n", "ok", strings.Join(well, ", "))
	return err
}
