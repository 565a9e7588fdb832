--[[ Stage-in by Slurm's plugin burst_buffer/lua, as /etc/slurm/burst_buffer.lua: has what a job will use in the memory
and on the disk of a standing service before the job is given its nodes. A job's script asks for it by a line such as

    #BB_LUA voxload /data/universes/catalog.parquet --dataset full --spatial 2,2,2 --seed 0

which `voxload serve warm` is given, run as the job's user on the controller's node: --socket names the service where it
is not the user's own. Services of a ring keep there what they are home of. Where it fails, the job begins without.
]]

-- Where Slurm's own user is not root: "sudo -n -u '#%d' -g '#%d' --"
local AS = "setpriv --reuid=%d --regid=%d --init-groups --reset-env --no-new-privs"
local PROGRAM = os.getenv("VOXLOAD_PROGRAM") or "voxload"
-- Words are divided as xargs divides them: nothing of a user's is read by a shell, root's or theirs.
local WARM = "sed -n 's/^#BB_LUA voxload //p' | xargs -r -L 1 '%s' serve warm --hold 3600"

local function is_quoted(text)
    return text:find("'", 1, true) ~= nil
end

-- From Slurm 23.02 on, user and group come with the call; before, Slurm is asked.
local function owner(job_id, uid, gid)
    if not uid or not gid then
        local pipe = io.popen(string.format("squeue --noheader --jobs %d --format '%%U %%G'", job_id))
        uid, gid = (pipe:read("*l") or ""):match("(%d+)%s+(%d+)")
        pipe:close()
    end
    return tonumber(uid), tonumber(gid)
end

function slurm_bb_job_process(job_script, uid, gid)
    return slurm.SUCCESS
end

function slurm_bb_pools()
    return slurm.SUCCESS
end

function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script)
    return slurm.SUCCESS
end

function slurm_bb_data_in(job_id, job_script, uid, gid)
    if is_quoted(job_script) or is_quoted(PROGRAM) then
        return slurm.ERROR, "voxload: a quotation mark in a path"
    end
    uid, gid = owner(job_id, uid, gid)
    if not uid or not gid or uid == 0 then
        return slurm.ERROR, "voxload: no user to stage in for"
    end
    local warm = string.format(WARM, PROGRAM)
    local command = string.format(AS .. " sh -c \"" .. warm .. "\" <'%s' >/dev/null 2>&1", uid, gid, job_script)
    if not os.execute(command) then
        slurm.log_info("voxload: nothing was staged in for job %d", job_id)
    end
    return slurm.SUCCESS
end

function slurm_bb_test_data_in(job_id)
    return slurm.SUCCESS, ""
end

function slurm_bb_real_size(job_id)
    return slurm.SUCCESS, "0"
end

function slurm_bb_paths(job_id, job_script, path_file)
    return slurm.SUCCESS
end

function slurm_bb_pre_run(job_id, job_script)
    return slurm.SUCCESS
end

function slurm_bb_post_run(job_id, job_script)
    return slurm.SUCCESS
end

function slurm_bb_data_out(job_id, job_script)
    return slurm.SUCCESS
end

function slurm_bb_test_data_out(job_id)
    return slurm.SUCCESS, ""
end

function slurm_bb_job_teardown(job_id, job_script, hurry)
    return slurm.SUCCESS
end

function slurm_bb_get_status(...)
    return slurm.SUCCESS, ""
end
