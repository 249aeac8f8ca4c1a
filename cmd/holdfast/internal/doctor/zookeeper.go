package doctor

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store/zookeeper"
)

// examineZooKeeper asks each server that the URL names about itself, with the four letters that every
// server answers.
func examineZooKeeper(servers *zookeeper.Servers) []finding {
	var findings []finding
	unknown := 0
	modes := map[string]int{}
	for _, addr := range servers.Addrs {
		of := func(f finding) {
			f.Node = "member " + addr
			findings = append(findings, f)
		}
		answer, err := askServer(servers, addr)
		if err != nil {
			of(finding{Check: "version", Level: warn, Text: "no answer: " + err.Error(), Advice: "start the member, or leave it out of the URL"})
			unknown++
			continue
		}
		own, mode := judgeServer(answer)
		for _, f := range own {
			of(f)
		}
		if mode == "" {
			unknown++
		} else {
			modes[mode]++
		}
	}
	if f, any := judgeMembers(modes, unknown); any {
		findings = append(findings, f)
	}
	return findings
}

// judgeMembers judges the members in a URL together: how many there are of each mode, and how many of
// which that is not known. There is nothing to say of a server that stands alone.
func judgeMembers(modes map[string]int, unknown int) (f finding, any bool) {
	voters, alone := modes["leader"]+modes["follower"], modes["standalone"]
	f = finding{Node: "all", Check: "members", Level: fine, Text: fmt.Sprintf("%d in the URL take part", voters)}
	if unknown > 0 {
		f.Text += fmt.Sprintf(", cannot tell of %d", unknown)
	}
	switch {
	case modes["leader"] > 1, alone > 1, alone == 1 && voters+modes["observer"] > 0:
		f.Level = fail
		f.Text = fmt.Sprintf("the URL names servers that do not belong together: %d leaders, %d standalone, %d others",
			modes["leader"], alone, modes["follower"]+modes["observer"])
		f.Advice = "name the members of one ensemble: on others locks do not exclude each other"
	case voters+unknown == 0:
		return finding{}, false
	case voters < 3:
		f.Level, f.Advice = warn, "name all members in the URL, of which there should be 3 or 5"
	}
	return f, true
}

// askServer returns the answer to srvr.
func askServer(servers *zookeeper.Servers, addr string) (string, error) {
	conn, err := servers.Dial("tcp", addr, 3*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	return string(text), err
}

// judgeServer judges the answer to srvr. It also returns the mode of the server, if that is known.
func judgeServer(answer string) (findings []finding, mode string) {
	lines := map[string]string{}
	for line := range strings.Lines(answer) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			lines[name] = value
		}
	}
	mode = lines["Mode"]
	f := finding{Check: "mode", Level: fine, Text: mode}
	switch {
	case strings.Contains(answer, "not currently serving"), mode == "read-only":
		f.Level, f.Text, f.Advice = fail, "it takes no writes: it sees no majority", "start members until a majority is up"
		return []finding{f}, "none"
	case mode == "":
		return []finding{judgeZooKeeper("")}, "" // srvr is not allowed there
	case mode == "standalone":
		f.Level, f.Advice = warn, "have 3 or 5 members, so that locks survive the loss of one"
	}
	return []finding{judgeZooKeeper(lines["Zookeeper version"]), f}, mode
}

// judgeZooKeeper says whether a version has the nodes that a lock is made of: before 3.5 there are
// none that go by themselves.
func judgeZooKeeper(text string) finding {
	version, _, _ := strings.Cut(text, "-")
	f := finding{Check: "version", Level: fine, Text: "ZooKeeper " + version}
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = warn, "cannot tell version and mode", "let the server answer srvr, see its 4lw.commands.whitelist"
	case major < 3 || major == 3 && minor < 5:
		f.Level, f.Advice = fail, "use ZooKeeper 3.5 or later"
	}
	return f
}
