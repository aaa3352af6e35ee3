BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num TEXT NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v2');
CREATE TABLE assets (
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	version VARCHAR(255) NOT NULL, 
	spec JSON NOT NULL, 
	labels JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	deleted_at FLOAT, 
	PRIMARY KEY (id)
);
INSERT INTO "assets" VALUES(1,'data','words','1','{"type": "uri_file", "path": "azureml://datastores/default/paths/uploads/6cfe5928128b8b33919261e0168845160ba5320c1cd149e086f5f837d4ea1d6c/files/words.txt"}','[]',1.79575255974350881573e+09,NULL);
INSERT INTO "assets" VALUES(2,'model','birds','1','{"path": "outputs/model.txt", "type": "custom_model", "files": 1, "size": 17, "digest": "0d91dc1990124b57bf742fed31c892306b09fa18e9c46b9eddc1533f9ef3bbeb", "job": "plain", "lineage": {"experiment": "birds", "status": "Completed", "attempt": 1, "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "code": "3bf12cfb02b7fe267068eb49309d187b5cdbcdb38fc979bae24ac90d2df3edf8", "environment": {"name": "current"}, "inputs": {"words": "azureml:words:1", "lr": 0.1}}}','["best"]',1.79575258431582427025e+09,NULL);
INSERT INTO "assets" VALUES(3,'environment','train','1','{"pip": ["packaging==24.2"]}','["prod"]',1.79575258563831663136e+09,NULL);
INSERT INTO "assets" VALUES(4,'component','say','1','{"inputs": {"word": {"type": "string", "default": "hello"}}, "command": "echo ${{inputs.word}}", "type": "command"}','[]',1.79575258769254827496e+09,NULL);
CREATE TABLE computes (
	name VARCHAR(63) NOT NULL, 
	spec JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "computes" VALUES('local','{"name": "local", "type": "local", "description": "this machine; each node has its own address", "options": {"max_ranks": "64"}}',1.79575259542692375184e+09);
CREATE TABLE deleted_jobs (
	name VARCHAR(255) NOT NULL, 
	deleted_at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE event_blocks (
	job_id INTEGER NOT NULL, 
	last INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (job_id, last), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "event_blocks" VALUES(1,19,X'789CCD94DD8EDA301085DFC5D76998F1BFB96E6FDB074068651203112189924085AABE7BC749D48DD9DDAABDAB2241C073BE9939637BB7C30C8D534671A545EE00A4722A63451FFC184A96D172D6DCEA7AFE80EC072BAB531846B66520839202050429357A5D94DA1A0F1A3412D0706551195158CDE92F07C750722B4B6D508193EA70643FF7D98EBFA697B910821B43E987DBE15A8D1F1470090FCADED5BE6A726419EBC371F53B42C51A4AB5490982A02134EFF186915A25C2AD23D8F773844F543FB40DDBC6B0C89449A11A84B354E839D4753B4361262211BBAA645B74286C54AAA41AA305D930F1CB47A2E4A4F465D98761A012909B1CE8E154CBB99D0CBF5FE9BD6BFB91D677A8D1E03E63553386FEE88BD8412C8515DD8DD691221FE3397640F5F8F14CCB9BF1DA6D7C5DF7BEB90C9F20C71C36F7D0DC3787AAD92CD119BB877EA8A28E891C313731A72F2E9EA6BEB841C59757CFB6475F0F2176A8930E91730EA937F8D61BA9A2D2AC950AD00927126FF04FDE880FBCF94F6CB149735C0B2B69F0A7F69D4D18C3DD3ADC4AA5143759DC9DFDEF83B0EC14416E4CD552AFB08F5A84B5D828A9A4B14F627C2BC659BCBA0354AE01391DD96C0A7A094DF9AAC74C92B8684B7215885E9D1A5FCFDD676C8A7CF1348C14064EEB290B4FB20830D2BC4D02F4FC7312014A2F49C43A099928ED224A3C50D183E580B3CFDFBE7EA1695E696FD134E3E99F48F2896490D3F4CA9EAE99279A9EE7872A516821A7839E34F7D7D957474AE7208C42A09114753B54CDE9BD5BACBBF55D3B44C0B16AAAE1BCBAC2E61C13D6245849E7D4D1100E8F9034649686EC3A5A68A7E9FBC902482D7089C282B292AFF8B0E2EF7F01F5A4CBD0');
INSERT INTO "event_blocks" VALUES(2,32,X'789C8D544D8BDB3010FD2B4667D5D1B7E4DC0ADD4329F4507A28841094488E4DFC85E5240DCBFEF78EECD0D8DB2C3401479166DE7B336FE4CD86514C7526B5645299946B23B561181D7A6F07EF108663DC9CAB6A7A10FC8A5C79F461406B4495A399A2DC302D4CCE32B5278E5865181139579E086505B3F9DEC9C39E092F85CFA866C6E5C4AB5C7A83DEB678C3D89C5F48803306A370DED7E5F0818293BF017D6ECBCABB94228C7A9FCF37465C3EC70558C608E016BEAADA09934C801400BBD2A135CD18E763AA58A4C22FE191C3BADB229341A675AEF721C46E309D12F832D053B463832E35ACBBB61FE07CC309D77A8B51D90CBECFEDC1434094820EDD19CEA1E7DD6D28DA06AD418F1D0A385E0D75B7B255D5DBE6143E9194A66475F1CD65B52F9BD53D1AA38BEF4319F3104F294D75E4B487930597D03A0A7D03F1AEB6689DDB2AF8B142B9A8D050C994C4E8D83EE9F618AFE6F18A1B2DA34783EDFF3A74EF09879E8C72A162B21D73F53CD76462EC66F0BE79662D600EB133E70ECAB816D1E7D15F1B6285633511D33C3033289A4B8A47DA9D6FDC4311C102200FAD03C4C8591E1B5B4D28188D913B0B3E2DA1389762E4C8E61C1C9E428B7BDA8340C67AEFEAD08FCFDFBFED5E7E7DFDF9F20544D730176002EC47650949DA2669400BACFCEF121A975CCBA148A2BC84AF93AA0D619D9094BFFBC409795EC134EF1F9480D100C7E002BAFA6688DC79DFD6C03D925EDBDE05409E4861AEFEAE492A67EB7FC4C0001730C1932D30C571B45F51DBD6BB535955F08760784184D32EEF3D68564C10A91837F1EEC1343FDB0E457DDF6692696E28C98478DC86FFBA056FD1314E168E09C9858EAF3228A66C8ECFA6AD3BF75D1BA24579D994A1988DDAC2CC119DCED115514AC617A5EB6DD9BCBB046ABA359C2D32400D60A0FDCD2F82750CDEFE012B3B8EE0');
INSERT INTO "event_blocks" VALUES(3,35,X'789C6D8D310AC3300C00FFA2D9144B9664AB5F09191C5B0985D0429B4E217F6FA04B877270C32D370C890366932C24992EB16816D600EDE975F30E014FEEEF75FD2A861DFA6DF1D70657882ADCAC7BB7A26255909CCD9872AD67D5D9E324CA28342926A9D1B5E15C9C0B17ED337538C63024F9FD23522A166079FC391FE3F8015A7F2FC6');
INSERT INTO "event_blocks" VALUES(4,60,X'789C75525B8E9B3014DD8BBF5DE2B771BEDBDF7601511439D8042BC4204C5245D5ECBDD726EA4034151242F89EC73DC7870357986A23B56452B38A322504A7183593B7B377085378E2BDEF9717C17F900B179F66B4474449D118E79DA995345652E6853182696BE1AF6A3D394B25A8646745B9B4C4AB86B6B517B5A8956B99431F477CE0F5465F2943413EDDCFB730FFC7C0D53F413D793B35DD8954146134F976FB2B530BB2A6664ACA1AD450E7FB7E5878C9424A81740C0EEDA961C614285D4379CD15E322CB58F7DC401940AD73934F090C50A62B020F034BDD50427ADCE07B1CA619CE0F946BA58F188538FBA9B58D8781EC0535E31DCE194C3EE76E88680F86ECDCC1F16EBE8D3BDBF7938DD7F40D56ABC8EEE1E363770E71F79AC6E8E1A714320EF18AD24A674DDB5C2D3485F6D9E8079877378BF6ADED932F2BB2F58A82724E88C4E8327C117999E7EB7905692AF09BBC8F5F759466B83E60E73E8295DF5D2EACD4645376591C01A7DC7880B7A43C93CE76FAD7FD2B680EA4250388911C0B98BF81A1DB3C71F2D17D820916806C06076E0850874BB4FDE200A33279B2D0D39649D55A1609B19110708F357FC136EE6476F75A0E7DFFF5F3072C7B833B0105E4CD0B97FCE4E2152370D5A582E6FB218578F92AC3F13E8D43CA046D882175AB00178D426BD6B44219650C466EB221BE79544B8F8ABC0174CD20B9F3D36FA6759E3EFE05B6CF265F');
INSERT INTO "event_blocks" VALUES(5,57,X'789C75934D0E9B301085EFE2B54BECF11FCEBADDB60788A2C8800928C4204C524555EFDEB113B510A5428A503CEF9B37CFC3E1200CE5C62AA3401928B8E45A6B4AEAD9BBC53784727CC26D189E3F8CFE224D7FF671217BC29C574C3310D696D01AB0BCB5AAAECA5AC94A495641E978D97ACB9867DA49E318185FB116555E8129C9EF233D08BB6E0FC2802A2989B7EADA2FFF3170F10FEC1EBD9BEBEEC40B4E28997DBBFD2BA1A55CA3712C6525A2BD0F9FA871C18111729B90F7B34B2D32D8C531907D2ACB4CB5660A301A0028E9FC308C4F2A7B223922A7BE217B6E05E359AAD752254069951B348F8D1250E99A66F631A2070EA660F8009AE9C69CFBFD8AEFD3382F787E005B4A79A4A40F8B9F5B57A7119215524F373C476FD363E9D208E8C72D1D1EEF96EBB473C330BB70895F58C10BB6BBFB70DF557DD8BDAA29B9FB39F6494744C17961524F575F1C5EFE2B0E34DF5C1DD9B76E883E4FB859255D720041C979FC10772E2FD7E52570DC244C042F62FE7BF3AF4C046692EDE2C4EC98C5F64DAC244F7162D1C987E69F9E5189E27A6C301986F4FE1CDCF09C80925C797298EA162641A7268A6D9A48CEF44BB371A792BBD7A290AF3FBE7FC3ACAE787D9855DAA24CE26B92D5964983D9D4C318FB70FEB48FD36D9EC698006D1FFAD8AD96F1D92363573B250AC9B45202B1CDECFAF066523F4357E64DA1057E82A47AF84DB549D5C73F7FA82570');
INSERT INTO "event_blocks" VALUES(6,64,X'789C8B8E3633D63134B7343537353235B7D0B33034313131D7514A2E4A4D2C494D51D23104C2BCD29C1C0861A053AD9492999E5A5CA264A5A4541BAB136D6682A2DDD8D4D8C2C85447293D1F8BD6DAD858008DC11E9A');
INSERT INTO "event_blocks" VALUES(7,75,X'789C7552DBAE9B3010FC173FBBC46B7CCDF3E96BFB015114397849AC804140224555FEBD0B897A0ED1A99000D933B3B3B3BBDB19CDC17A6DB5D4D6154E7BABC172560D18268C8C033DF9DA34CF97E07F584C271C27B665D129E140D4602482C7D24773AC5CA9A43347234C6D4A6D43A915602544A522D6CE19A934205AAC85648F3DDF19B3AAEFACF4D273365E8F6D9AFEE3E082772ADFA71E0F6DB860018CB301EBB7B345DD7E55F7E094719C9DB169BAA7B078AA02A9F629B22D78256161BA155339E5BD9CCB84785F512551438C038E231900690B418F244BE76E89E9D6D27FDF0D13DDEFC097A5DB7396F284431D2A24C0EC8555FD95EEA9427F9FCE5D665B3214A6335D6FA6B6DF84A61942BE8C3F440185D8DC30DF36C794372F3467371CC634F35859001476AE19AA4BA059B1ED6CF441E6631BD8B60ECD884B8B7ED5A2334208CDD9A9FB26F3196FC527DE1742D1479634AA290CFF06F50AA5A45016BFD4B2D82F6478237B63893C830E98E3275F7045E4AA8B148D20F574CAA179B6C0D9823C048A752D66BD5B8AC855112D9CF3E58BB5F2A7677F18C625B08FDFBF7E525C2D4D90E2A2836575C8DD4A0B40913C8B4348F94DCDBCF2516F0C29E69539DE7185B62FB45EA30D80A6C5AF9A6E4CF9F4DDDAF7D7A1EFC6D9609D721ACFCBD67FEDE1B1DFFF0519A41032');
INSERT INTO "event_blocks" VALUES(8,87,X'789C7553CDCEDB20107C17CED461F931C6E7F6DA3E401445C44082E260CB3891A22AEFDE3589DA38FA2A2464C1CCECEC2CDE6EB5A6A08DD28A2B6D2AE09A8350947493B7B3778402AE74EDFBE7C6E86FE2E2D1E799B4C480359E8134A611C80E413B5B1F82D63C182555233980325A5809C136ACC1732574604E07C58375E4B1A35BDDACEA2BD900E394E4EBE112E7FF3838FB3B961FE3E8F7D7EC2B20944C3EAC8F8AB679D7E64CD552A0F6C9F7FDF0D4654F5140D1313AD28291DC2CD486ADA842D6209BA58C75F7159523D53A37F99CD100E657315C1C2D9D8692D2ED82DFE330CD78BFE54A9A7A47494CB39F82ED3C02162FA41BAF788FE6C6FB7C1A1269D1909D4F78BD992FE3C6F6FD64D3397F6315546C73F3E9B639C4B479A129B9F929C78547440550E9A5A6EDCE164745DAC5E803CDBB8B256DB07DF6A54558B5881BD438F9E3F045E405CFDFF10284601AF179B6D3DF39BD4211184AF18B2DB35D218B0FB2667AC913417B9FDC3F3EA312C9DDE0301A86EAF1986CFF6C819282DC5B8C752DA6A4AE4B15B9AA22806980176D65502D06BDCD25B1EFBF7EFEC0BC2E3842CC0B0FCAE369D48796E068D84D36A60FB1FA954FFD49C0402939DCFD0AAD5FE8D57F2799D235BA275D3FE4988E5FBDFAF13A8D435EFC8598623E9557FFDEC263B7FB0387660F7F');
INSERT INTO "event_blocks" VALUES(9,100,X'789C7553DB8E9B3010FD977976892FD8C63CB7AFED0744D1CA60275821066112295AE5DF7730511BA2AD90101ACFB9CCF1B0DF1B4A9836524B2E2B56482554292B02EDE4EDEC1D10864FBCF6FDFAA2E4135C38F934430DCC48C11C6BAA63EB7D259D32B251926BCB0CA75A09AA6C69956FA416D66B278C6B9857ACD58D960DA52D3C0E646FD846DFC84A19D44FD7E612E6FF3838FB3BCA77C1391F0B0604267F7C2D645EFECAABA91186236FE7FB7E5839E94AC890700C0E6A1CC7D00C15AFD08A535332BE885877DF403942AD73934F698983EB82E2C3D15037E4846E17FC1E8769C6F33D975CA9038110673F1D6DEBB161F102ED78C5735418EF733744A8D1909D3B3CDECD977167FB7EB2F19C7ED082157477F3F1B66B42DC3DBB09DCFC94C2820351309C75D1B4EDD9E23541BD187DA07977B1501F6D9F7C1EB1DC8E5862014EC33761E76EB9E9D68A528C17D26CA7BF37F48C446024D92D0E4C0F19ACDEC042334672D3878FEE1F9E9212C1EDE030188AECE1146DBF0E4020777E580C754BC6B9D459456F542A21249660239099E462D0DB94F3FAF9E7F72F4CEB8217886961615D9DEA8D0B5508B8C986F846A69EF9987740B5E4D9DCFDA65BAFDD8C6E7EB9CAE852E2CA41DB0F29C4D3770B3F5EA771488BC16388217579E55F67781C0E5FA3790E3E');
CREATE TABLE events (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	launch INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	node INTEGER, 
	rank INTEGER, 
	seq INTEGER NOT NULL, 
	data JSON NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "events" VALUES(20,1,1.79575256638257479665e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(33,2,1.79575256988352942462e+09,'finished',1,1,NULL,NULL,0,'{"status": "Failed", "exit_code": 3, "error": {"reason": "RANK_EXITED", "blame": "user", "message": "rank 0 on node 0 exited with code 3: loss: 0.3333333333333333", "hint": "see its log: allranks job logs failed --rank 0", "node": 0, "rank": 0, "cause": "UNKNOWN", "explanation": "the cause is unknown", "evidence": null, "retryable": null, "exception": null}}');
INSERT INTO "events" VALUES(58,5,1.79575257342626380925e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(61,4,1.79575257350146102897e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(62,3,1.795752573538790226e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(76,7,1.79575257905629205698e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(88,8,1.7957525794059224129e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(89,6,1.79575257943879222871e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(101,9,1.79575258189764904977e+09,'finished',1,1,NULL,NULL,0,'{"status": "Completed", "exit_code": 0, "error": null}');
INSERT INTO "events" VALUES(102,10,1.79575259825299096108e+09,'created',1,1,NULL,NULL,0,'{"digest": "38e90aa8d4daf4a66ad7b07cb87a7c905c83b162a14fe8b43b5f7218dcf2759b"}');
INSERT INTO "events" VALUES(103,10,1.79575259829728269573e+09,'submitted',1,1,NULL,NULL,0,'{"key": "running.1", "ref": "running.1"}');
INSERT INTO "events" VALUES(104,10,1.79575259837416768078e+09,'hello',1,1,0,NULL,1,'{"pid": 20403}');
INSERT INTO "events" VALUES(105,10,1.79575259846179151532e+09,'ready',1,1,0,NULL,2,'{"address": "127.0.0.2", "host": "vm", "ports": [22133], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}');
INSERT INTO "events" VALUES(106,10,1.79575259848193407056e+09,'go',1,1,NULL,NULL,0,'{}');
INSERT INTO "events" VALUES(107,10,1.79575259877030372619e+09,'seen',1,1,NULL,NULL,0,'{"state": "up", "why": "", "reason": null}');
INSERT INTO "events" VALUES(108,10,1.79575259857341408727e+09,'started',1,1,0,NULL,3,'{"ranks": [0]}');
CREATE TABLE feeds (
	job_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	node INTEGER NOT NULL, 
	name VARCHAR(20) NOT NULL, 
	taken BIGINT NOT NULL, 
	PRIMARY KEY (job_id, attempt, node, name), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "feeds" VALUES(1,1,1,'resources',358);
INSERT INTO "feeds" VALUES(1,1,0,'metrics',484);
INSERT INTO "feeds" VALUES(1,1,0,'resources',359);
INSERT INTO "feeds" VALUES(2,1,0,'metrics',484);
INSERT INTO "feeds" VALUES(2,1,0,'resources',358);
INSERT INTO "feeds" VALUES(5,1,0,'metrics',458);
INSERT INTO "feeds" VALUES(4,1,0,'metrics',458);
INSERT INTO "feeds" VALUES(10,1,0,'resources',2725);
CREATE TABLE job_annotations (
	job_id INTEGER NOT NULL, 
	display_name TEXT NOT NULL, 
	tags JSON NOT NULL, 
	archived_at FLOAT, 
	parameters JSON, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_annotations" VALUES(1,'A plain job','{"team": "vision"}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(2,'failed','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(3,'search','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(4,'search_0','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(5,'search_1','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(6,'pipe','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(7,'make','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(8,'use','{}',NULL,'{}');
INSERT INTO "job_annotations" VALUES(9,'hidden','{}',1.79575258318090057369e+09,'{}');
INSERT INTO "job_annotations" VALUES(10,'running','{}',NULL,'{}');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	experiment VARCHAR(255) NOT NULL, 
	status VARCHAR(20) NOT NULL, 
	live INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	lease_owner VARCHAR(64), 
	lease_until FLOAT, 
	created_at FLOAT NOT NULL, 
	started_at FLOAT, 
	ended_at FLOAT, 
	exit_code INTEGER, 
	spec JSON NOT NULL, 
	"plan" JSON NOT NULL, 
	record JSON NOT NULL, 
	error JSON, 
	type VARCHAR(20) DEFAULT 'command' NOT NULL, 
	parent VARCHAR(255), 
	number INTEGER, 
	notes JSON, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "jobs" VALUES(1,'plain','birds','Completed',0,14,NULL,NULL,1.79575256390045952803e+09,1.79575256452638435363e+09,1.79575256638257479665e+09,0,'{"name": "plain", "display_name": "A plain job", "description": "With what most jobs have: ''quotes'', \u00fcmlauts", "experiment_name": "birds", "tags": {"team": "vision"}, "inputs": {"words": {"type": "uri_file", "path": "azureml:words:1"}, "lr": 0.1}, "resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}, "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "code": "@ROOT@/code", "state": "plain"}','{"gang": {"key": "plain.1", "nodes": 2, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 2, "fixed_ports": []}, "task": {"job": "plain", "experiment": "birds", "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "nodes": 2, "procs": 1, "gpus": 0, "distribution": "pytorch", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "3bf12cfb02b7fe267068eb49309d187b5cdbcdb38fc979bae24ac90d2df3edf8", "in_place": null, "inputs": [{"name": "words", "text": null, "source": "@HOME@/data/uploads/6cfe5928128b8b33919261e0168845160ba5320c1cd149e086f5f837d4ea1d6c/files/words.txt", "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "words:1", "digest": ""}, {"name": "lr", "text": "0.1", "source": null, "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "", "digest": ""}], "outputs": [], "record": "@HOME@/jobs/plain", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "plain", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 2, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "04e543130e4461a6cd687a0606195772581573c86260690fed284d67150945bf", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [16171], "interface": "lo", "cpus": 1, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752565.8634284, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795752565.6305666, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}, {"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.3", "host": "vm", "ports": [], "interface": "lo", "cpus": 1, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752565.84548, "rank": null, "code": null, "message": "", "hint": "", "finished": [1], "finished_at": 1795752565.6010966, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "plain.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752564.3332775, "started_at": 1795752564.5263844, "went_at": 1795752564.5263844, "up_at": 1795752564.4614403, "closing_at": 1795752566.0375106, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'failed','code','Failed',0,11,NULL,NULL,1.79575256837857818604e+09,1.79575256858152651788e+09,1.79575256988352942462e+09,3,'{"command": "python train.py ''${{inputs.words}}'' fail", "code": "@ROOT@/code", "resources": {"instance_count": 1}, "inputs": {"words": {"type": "uri_file", "path": "@ROOT@/data/words.txt", "mode": "ro_mount"}}, "name": "failed", "metrics": {"loss": "loss: ([0-9.]+)"}, "experiment_name": "code"}','{"gang": {"key": "failed.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "failed", "experiment": "code", "command": "python train.py ''${{inputs.words}}'' fail", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "3bf12cfb02b7fe267068eb49309d187b5cdbcdb38fc979bae24ac90d2df3edf8", "in_place": null, "inputs": [{"name": "words", "text": null, "source": "@ROOT@/data/words.txt", "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "", "digest": ""}], "outputs": [], "record": "@HOME@/jobs/failed", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "16d1961382748f296b0d0a68204f36e046a42afbd5cb24e54e91728df0e6f5e8", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [30377], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "RANK_EXITED", "at": 1795752569.1133354, "rank": 0, "code": 3, "message": "rank 0 on node 0 exited with code 3: loss: 0.3333333333333333", "hint": "", "finished": [], "finished_at": 0.0, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Failed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "RANK_EXITED"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "failed.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752568.4513888, "started_at": 1795752568.5815265, "went_at": 1795752568.5815265, "up_at": 1795752568.5132208, "closing_at": 1795752569.3453472, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','{"reason": "RANK_EXITED", "blame": "user", "message": "rank 0 on node 0 exited with code 3: loss: 0.3333333333333333", "hint": "see its log: allranks job logs failed --rank 0", "node": 0, "rank": 0, "cause": "UNKNOWN", "explanation": "the cause is unknown", "evidence": null, "retryable": null, "exception": null}','command',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'search','allranks-0.1.0','Completed',0,2,NULL,NULL,1.79575257208675456051e+09,1.79575257211238908765e+09,1.795752573538790226e+09,0,'{"name": "search", "type": "sweep", "search_space": {"lr": {"type": "uniform", "min_value": 0, "max_value": 1}}, "limits": {"max_total_trials": 2, "max_concurrent_trials": 2}, "objective": {"goal": "minimize", "primary_metric": "loss"}, "sampling_algorithm": {"type": "random", "seed": 1}, "experiment_name": "allranks-0.1.0", "trial": {"command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "code": "@ROOT@", "resources": {"instance_count": 1}, "metrics": {"loss": "loss: ([0-9.]+)"}}}','{"gang": {"key": "search.1", "nodes": 0, "argv": [], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "search", "experiment": "allranks-0.1.0", "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "nodes": 0, "procs": 0, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "d19910f63fdaf2c1039d36e9a8b10a846eadaf8b1bc90ec62743fa626b8dcb6b", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/search", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 3, "on": ["node_lost", "preempted"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "0654c9ded98659a512e499427aa9de6fe0b564152b6135a0e6c1f8e48486df2d", "compute": "local", "server_address": "", "notes": []}','{"nodes": [], "status": "Completed", "launch": 1, "attempt": 1, "then": null, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": null, "started_at": 1795752572.112389, "went_at": 1795752572.112389, "up_at": null, "closing_at": null, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','sweep',NULL,NULL,'{"best": "search_1"}');
INSERT INTO "jobs" VALUES(4,'search_0','allranks-0.1.0','Completed',0,9,NULL,NULL,1.79575257212644314765e+09,1.79575257241330051415e+09,1.79575257350146102897e+09,0,'{"experiment_name": "allranks-0.1.0", "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "code": "@ROOT@", "type": "command", "name": "search_0", "parent_job_name": "search", "search_space": {"lr": 0.9193906393606593}, "retry": {"max_attempts": 3, "on": ["node_lost", "preempted"]}}','{"gang": {"key": "search_0.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "search_0", "experiment": "allranks-0.1.0", "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "d19910f63fdaf2c1039d36e9a8b10a846eadaf8b1bc90ec62743fa626b8dcb6b", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/search_0", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "search", "parameters": {"lr": "0.9193906393606593"}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 3, "on": ["node_lost", "preempted"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "0654c9ded98659a512e499427aa9de6fe0b564152b6135a0e6c1f8e48486df2d", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [13767], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752572.5461373, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795752572.5256875, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "search_0.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752572.166911, "started_at": 1795752572.4133005, "went_at": 1795752572.4133005, "up_at": 1795752572.2655838, "closing_at": 1795752573.2016656, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','search',0,'{"parameters": {"lr": 0.9193906393606593}, "numbers": {"lr": 0.9193906393606593}, "value": 0.9193906393606593, "reports": 2}');
INSERT INTO "jobs" VALUES(5,'search_1','allranks-0.1.0','Completed',0,9,NULL,NULL,1.79575257214166593552e+09,1.79575257268122291569e+09,1.79575257342626380925e+09,0,'{"experiment_name": "allranks-0.1.0", "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "code": "@ROOT@", "type": "command", "name": "search_1", "parent_job_name": "search", "search_space": {"lr": 0.2647820332812658}, "retry": {"max_attempts": 3, "on": ["node_lost", "preempted"]}}','{"gang": {"key": "search_1.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "search_1", "experiment": "allranks-0.1.0", "command": "bash -c ''for i in 1 2; do echo loss: ${{search_space.lr}}$i; done''", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "d19910f63fdaf2c1039d36e9a8b10a846eadaf8b1bc90ec62743fa626b8dcb6b", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/search_1", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [{"name": "loss", "pattern": "loss: ([0-9.]+)", "rank": 0}], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "search", "parameters": {"lr": "0.2647820332812658"}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 3, "on": ["node_lost", "preempted"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "0ae5060239982f7291f95cb8c54b540b28a18fe900e06a47a027eb0fe50e5278", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [29844], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752572.84106, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795752572.821426, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "search_1.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752572.237258, "started_at": 1795752572.681223, "went_at": 1795752572.681223, "up_at": 1795752572.666594, "closing_at": 1795752572.9690473, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','search',1,'{"parameters": {"lr": 0.2647820332812658}, "numbers": {"lr": 0.2647820332812658}, "value": 0.2647820332812658, "reports": 2}');
INSERT INTO "jobs" VALUES(6,'pipe','allranks-0.1.0','Completed',0,2,NULL,NULL,1.79575257881444692613e+09,1.79575257883538246155e+09,1.79575257943879222871e+09,0,'{"type": "pipeline", "name": "pipe", "jobs": {"make": {"command": "echo made > ${{outputs.made}}/file", "outputs": {"made": {"type": "uri_folder"}}}, "use": {"command": "cat ${{inputs.made}}/file", "inputs": {"made": "${{parent.jobs.make.outputs.made}}"}}}, "experiment_name": "allranks-0.1.0", "properties": {"allranks.packages": "89156902d04196e69719efae08e829858449c2490195b5b3fbb8e2b30ce2988f"}}','{"gang": {"key": "pipe.1", "nodes": 0, "argv": [], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 0, "fixed_ports": []}, "task": {"job": "pipe", "experiment": "allranks-0.1.0", "command": "", "nodes": 0, "procs": 0, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": null, "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/pipe", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 0, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "", "compute": "local", "server_address": "", "notes": []}','{"nodes": [], "status": "Completed", "launch": 1, "attempt": 1, "then": null, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": null, "started_at": 1795752578.8353825, "went_at": 1795752578.8353825, "up_at": null, "closing_at": null, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','pipeline',NULL,NULL,'{"outputs": {}}');
INSERT INTO "jobs" VALUES(7,'pipe_make','allranks-0.1.0','Completed',0,6,NULL,NULL,1.79575257885975170138e+09,1.79575257898600053785e+09,1.79575257905629205698e+09,0,'{"command": "echo made > ${{outputs.made}}/file", "type": "command", "name": "pipe_make", "experiment_name": "allranks-0.1.0", "display_name": "make", "inputs": {}, "outputs": {"made": {"type": "uri_folder"}}, "parent_job_name": "pipe"}','{"gang": {"key": "pipe_make.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "pipe_make", "experiment": "allranks-0.1.0", "command": "echo made > ${{outputs.made}}/file", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": null, "in_place": null, "inputs": [], "outputs": [{"name": "made", "path": "@HOME@/jobs/pipe_make/named-outputs/made", "is_file": false, "uri": "", "datastore": "", "mode": "rw_mount"}], "record": "@HOME@/jobs/pipe_make", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "pipe", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "d840810f162e19e39d6bc834286b606f6357a3541ec00c4def8862451ee7ef02", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [19338], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752579.0508893, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795752579.042798, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "pipe_make.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752578.8872929, "started_at": 1795752578.9860005, "went_at": 1795752578.9860005, "up_at": 1795752578.918468, "closing_at": 1795752579.0561159, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','pipe',0,'{"step": "make", "not_reused": "it has no earlier result", "closed": true}');
INSERT INTO "jobs" VALUES(8,'pipe_use','allranks-0.1.0','Completed',0,6,NULL,NULL,1.79575257912721347806e+09,1.79575257925791645051e+09,1.7957525794059224129e+09,0,'{"command": "cat ${{inputs.made}}/file", "type": "command", "name": "pipe_use", "experiment_name": "allranks-0.1.0", "display_name": "use", "inputs": {"made": {"type": "uri_folder", "path": "azureml://jobs/pipe_make/outputs/made/paths/"}}, "outputs": {}, "parent_job_name": "pipe"}','{"gang": {"key": "pipe_use.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "pipe_use", "experiment": "allranks-0.1.0", "command": "cat ${{inputs.made}}/file", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": null, "in_place": null, "inputs": [{"name": "made", "text": null, "source": "@HOME@/jobs/pipe_make/named-outputs/made", "mode": "ro_mount", "uri": "", "datastore": "", "unpack": false, "sharded": false, "asset": "", "digest": ""}], "outputs": [], "record": "@HOME@/jobs/pipe_use", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "pipe", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "91a9e0149983257ff7da6bf772f9545842115973a41fa80872f537f0d7f52fad", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [25496], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752579.3310711, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795752579.3135476, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "pipe_use.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752579.1548102, "started_at": 1795752579.2579165, "went_at": 1795752579.2579165, "up_at": 1795752579.2056432, "closing_at": 1795752579.4057684, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command','pipe',1,'{"step": "use", "not_reused": "it has no earlier result", "closed": true}');
INSERT INTO "jobs" VALUES(9,'hidden','allranks-0.1.0','Completed',0,5,NULL,NULL,1.7957525815636458397e+09,1795752581.82494,1.79575258189764904977e+09,0,'{"command": "true", "code": "@ROOT@", "resources": {"instance_count": 1}, "name": "hidden", "experiment_name": "allranks-0.1.0"}','{"gang": {"key": "hidden.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "hidden", "experiment": "allranks-0.1.0", "command": "true", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "d19910f63fdaf2c1039d36e9a8b10a846eadaf8b1bc90ec62743fa626b8dcb6b", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/hidden", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 1, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "19531d1b8fcee85d695b6527a192076306a4a6eb573ae7d39db1e61c7b75b00c", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "EXITED", "attempt": 1, "seq": 7, "place": {"address": "127.0.0.2", "host": "vm", "ports": [25266], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": true, "reason": "DONE", "at": 1795752581.8833597, "rank": null, "code": null, "message": "", "hint": "", "finished": [0], "finished_at": 1795752581.8762257, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Completed", "launch": 1, "attempt": 1, "then": {"purpose": "finish", "reason": "DONE"}, "canceled": false, "given_up": false, "gang": "absent", "why": "", "ref": "hidden.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752581.5958698, "started_at": 1795752581.82494, "went_at": 1795752581.82494, "up_at": 1795752581.7093928, "closing_at": 1795752581.8974593, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}','null','command',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'running','allranks-0.1.0','Running',1,5,NULL,NULL,1.79575259825299096108e+09,1.79575259848193407056e+09,NULL,NULL,'{"command": "bash -c ''echo begun; [ \"$ALLRANKS_ATTEMPT\" = 1 ] && exec sleep 600; echo attempt $ALLRANKS_ATTEMPT''", "code": "@ROOT@", "resources": {"instance_count": 1}, "retry": {"max_attempts": 2}, "name": "running", "experiment_name": "allranks-0.1.0"}','{"gang": {"key": "running.1", "nodes": 1, "argv": ["@ROOT@/venv/bin/python", "-P", "-m", "allranks.agent"], "env": {}, "gpus": 0, "cpus": null, "memory": null, "options": {"max_ranks": 64}, "processes": 1, "grace": null, "spot": false, "ranks": 1, "fixed_ports": []}, "task": {"job": "running", "experiment": "allranks-0.1.0", "command": "bash -c ''echo begun; [ \"$ALLRANKS_ATTEMPT\" = 1 ] && exec sleep 600; echo attempt $ALLRANKS_ATTEMPT''", "nodes": 1, "procs": 1, "gpus": 0, "distribution": "none", "chiefs": 0, "parameter_servers": 0, "evaluators": 0, "options": {}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "variables": {}, "code": "d19910f63fdaf2c1039d36e9a8b10a846eadaf8b1bc90ec62743fa626b8dcb6b", "in_place": null, "inputs": [], "outputs": [], "record": "@HOME@/jobs/running", "timeout": null, "hang_timeout": null, "flight_recorder": true, "on_failure": null, "environment": "", "environment_asked": "", "container": null, "recipe": null, "current": null, "environments": "", "uv": "", "tools": {}, "cache": "@HOME@/cache", "cache_limit": null, "metrics": [], "continues": "", "previous": "", "state": "", "keep_work": 10000000000, "parent": "", "parameters": {}, "warm": [], "sends_files": false, "may_send": false, "fresh_work": false, "services": [], "inside": "", "inherits": false}, "rules": {"nodes": 1, "max_attempts": 2, "on": ["node_lost", "preempted", "hang", "user", "setup"], "timeout": null, "budgets": {}, "grace": null, "look": null, "no_progress": "fail"}, "engine": "local", "digest": "38e90aa8d4daf4a66ad7b07cb87a7c905c83b162a14fe8b43b5f7218dcf2759b", "compute": "local", "server_address": "", "notes": []}','{"nodes": [{"state": "RUNNING", "attempt": 1, "seq": 3, "place": {"address": "127.0.0.2", "host": "vm", "ports": [22133], "interface": "lo", "cpus": 2, "python": {"path": "@ROOT@/venv/bin/python", "version": "3.11.7", "packages": null}, "rdma": false}, "worked": false, "left": false, "reason": null, "at": 0.0, "rank": null, "code": null, "message": "", "hint": "", "finished": [], "finished_at": 0.0, "doing": "", "phase": "", "phase_at": 0.0, "passing": false, "held": 0.0}], "status": "Running", "launch": 1, "attempt": 1, "then": null, "canceled": false, "given_up": false, "gang": "up", "why": "", "ref": "running.1", "gone": null, "spent": {"user": 0, "hang": 0, "setup": 0, "node_lost": 0, "preempted": 0, "port": 0, "row": 0}, "previous": null, "submitted_at": 1795752598.2972827, "started_at": 1795752598.481934, "went_at": 1795752598.481934, "up_at": 1795752598.3741677, "closing_at": null, "stopped_at": null, "not_before": 0.0, "message": "", "hung": null, "doomed": null, "released": "", "leftovers": "", "stalled": {"progress": "made", "attempts": 0}}',NULL,'command',NULL,NULL,NULL);
CREATE TABLE mlflow_runs (
	job_id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	experiment_id VARCHAR(64) NOT NULL, 
	positions JSON NOT NULL, 
	done INTEGER NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE point_blocks (
	series_id INTEGER NOT NULL, 
	first INTEGER NOT NULL, 
	length INTEGER NOT NULL, 
	earliest FLOAT NOT NULL, 
	latest FLOAT NOT NULL, 
	least FLOAT, 
	greatest FLOAT, 
	data BLOB NOT NULL, 
	PRIMARY KEY (series_id, first)
);
INSERT INTO "point_blocks" VALUES(1,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,100.0,100.0,X'789C636080002FEEC2B90E876E394278910E002A99041A');
INSERT INTO "point_blocks" VALUES(2,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,4929728512.0,4929728512.0,X'789C636080002FEEC2B90E876E3982D8D1B19F1C012E4F056C');
INSERT INTO "point_blocks" VALUES(3,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,25276059648.0,25276059648.0,X'789C636080002FEEC2B90E876E3902990E1E5DE24E002E1504EC');
INSERT INTO "point_blocks" VALUES(4,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,151711.176,151711.176,X'789C636080002FEEC2B90E876E392A6E28CAF8D9C2E4080039E806EC');
INSERT INTO "point_blocks" VALUES(5,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,5916735.851,5916735.851,X'789C636080002FEEC2B90E876E396E3951F68D7F529823003F3007A1');
INSERT INTO "point_blocks" VALUES(6,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,0.0,0.0,X'789C636080002FEEC2B90E876E3942B90C0029A70381');
INSERT INTO "point_blocks" VALUES(7,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,0.0,0.0,X'789C636080002FEEC2B90E876E3942B90C0029A70381');
INSERT INTO "point_blocks" VALUES(8,0,1,1.79575256576631402975e+09,1.79575256576631402975e+09,25276059648.0,25276059648.0,X'789C636080002FEEC2B90E876E3902990E1E5DE24E002E1504EC');
INSERT INTO "point_blocks" VALUES(9,0,3,1.79575256549373435972e+09,1.79575256549373435972e+09,3.33333333333333314829e-01,1.0,X'789C63606464C006221818663230C43330CC656070606038C4C0708B81C11124138A863E3CB86A6F6F0F00C1D5096D');
INSERT INTO "point_blocks" VALUES(10,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,100.0,100.0,X'789C6360808089CB0BE73A1CBAE508E1453A0000382D04FD');
INSERT INTO "point_blocks" VALUES(11,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,4913045504.0,4913045504.0,X'789C6360808089CB0BE73A1CBAE5086217F97E7204003C0F0656');
INSERT INTO "point_blocks" VALUES(12,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,25276059648.0,25276059648.0,X'789C6360808089CB0BE73A1CBAE508643A7874893B01003BA905CF');
INSERT INTO "point_blocks" VALUES(13,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,144400.112,144400.112,X'789C6360808089CB0BE73A1CBAE5D8E998F0B46101A32300482607D5');
INSERT INTO "point_blocks" VALUES(14,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,5701616.537,5701616.537,X'789C6360808089CB0BE73A1CBAE5686F1AA7F4677FA82300449C07A9');
INSERT INTO "point_blocks" VALUES(15,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,0.0,0.0,X'789C6360808089CB0BE73A1CBAE508E5320000373B0464');
INSERT INTO "point_blocks" VALUES(16,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,0.0,0.0,X'789C6360808089CB0BE73A1CBAE508E5320000373B0464');
INSERT INTO "point_blocks" VALUES(17,0,1,1.79575256577585244178e+09,1.79575256577585244178e+09,25276059648.0,25276059648.0,X'789C6360808089CB0BE73A1CBAE508643A7874893B01003BA905CF');
INSERT INTO "point_blocks" VALUES(18,0,3,1.79575256902916073793e+09,1.79575256902916073793e+09,3.33333333333333314829e-01,1.0,X'789C63606464C0068E3230DC656070646098C7C0E0C0C0708881E11698CBC0108A863E3CB86A6F6F0F00DD740A01');
INSERT INTO "point_blocks" VALUES(19,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,100.0,100.0,X'789C636080803BAA41F31C0EDD7284F0221D00339A04A8');
INSERT INTO "point_blocks" VALUES(20,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,4889448448.0,4889448448.0,X'789C636080803BAA41F31C0EDD7204B13F9A7D72040039330669');
INSERT INTO "point_blocks" VALUES(21,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,25276059648.0,25276059648.0,X'789C636080803BAA41F31C0EDD7204321D3CBAC49D003716057A');
INSERT INTO "point_blocks" VALUES(22,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,9647831.662,9647831.662,X'789C636080803BAA41F31C0EDD725C20A5FFF5565A92230043E007D0');
INSERT INTO "point_blocks" VALUES(23,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,97716.053,97716.053,X'789C636080803BAA41F31C0EDD72D46E17BBE970FBBB030042310802');
INSERT INTO "point_blocks" VALUES(24,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,0.0,0.0,X'789C636080803BAA41F31C0EDD728472190032A8040F');
INSERT INTO "point_blocks" VALUES(25,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,0.0,0.0,X'789C636080803BAA41F31C0EDD728472190032A8040F');
INSERT INTO "point_blocks" VALUES(26,0,1,1.79575256928356075288e+09,1.79575256928356075288e+09,25276059648.0,25276059648.0,X'789C636080803BAA41F31C0EDD7204321D3CBAC49D003716057A');
INSERT INTO "point_blocks" VALUES(28,0,2,1.79575257248116087918e+09,1.79575257248116087918e+09,9.19390639360659345236e-01,9.19390639360659345236e-01,X'789C6360644001E10CA719E418E63338301C62B8C5E0C8307DFABA759C9CAF5F2F5D9A9DFDF6ADBD3D00AF1C0CE8');
INSERT INTO "point_blocks" VALUES(27,0,2,1.79575257276116085052e+09,1.79575257276116085052e+09,2.64782033281265816171e-01,2.64782033281265816171e-01,X'789C63606440017718B6311830CC67706038C4708BC191414666F7EE8484F07003834F9F2E5CB0B70700ACB40BFE');
CREATE TABLE points (
	series_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	value FLOAT, 
	PRIMARY KEY (series_id, number)
)
 WITHOUT ROWID

;
INSERT INTO "points" VALUES(29,0,0,1.79575259961367654799e+09,100.0);
INSERT INTO "points" VALUES(29,1,0,1.79575260065015983581e+09,100.0);
INSERT INTO "points" VALUES(29,2,0,1.79575260166984987256e+09,100.0);
INSERT INTO "points" VALUES(29,3,0,1.79575260269776177408e+09,100.0);
INSERT INTO "points" VALUES(29,4,0,1.79575260369909310339e+09,100.0);
INSERT INTO "points" VALUES(30,0,0,1.79575259961367654799e+09,4618153984.0);
INSERT INTO "points" VALUES(30,1,0,1.79575260065015983581e+09,4606676992.0);
INSERT INTO "points" VALUES(30,2,0,1.79575260166984987256e+09,4687122432.0);
INSERT INTO "points" VALUES(30,3,0,1.79575260269776177408e+09,4701736960.0);
INSERT INTO "points" VALUES(30,4,0,1.79575260369909310339e+09,4683550720.0);
INSERT INTO "points" VALUES(31,0,0,1.79575259961367654799e+09,25276059648.0);
INSERT INTO "points" VALUES(31,1,0,1.79575260065015983581e+09,25276059648.0);
INSERT INTO "points" VALUES(31,2,0,1.79575260166984987256e+09,25276059648.0);
INSERT INTO "points" VALUES(31,3,0,1.79575260269776177408e+09,25276059648.0);
INSERT INTO "points" VALUES(31,4,0,1.79575260369909310339e+09,25276059648.0);
INSERT INTO "points" VALUES(32,0,0,1.79575259961367654799e+09,212749.947);
INSERT INTO "points" VALUES(32,1,0,1.79575260065015983581e+09,3359016.998);
INSERT INTO "points" VALUES(32,2,0,1.79575260166984987256e+09,1786691.942);
INSERT INTO "points" VALUES(32,3,0,1.79575260269776177408e+09,1169503.885);
INSERT INTO "points" VALUES(32,4,0,1.79575260369909310339e+09,139477.087);
INSERT INTO "points" VALUES(33,0,0,1.79575259961367654799e+09,605519.08);
INSERT INTO "points" VALUES(33,1,0,1.79575260065015983581e+09,3914.938);
INSERT INTO "points" VALUES(33,2,0,1.79575260166984987256e+09,2890695.915);
INSERT INTO "points" VALUES(33,3,0,1.79575260269776177408e+09,3823378.086);
INSERT INTO "points" VALUES(33,4,0,1.79575260369909310339e+09,31880.477);
INSERT INTO "points" VALUES(34,0,0,1.79575259961367654799e+09,0.0);
INSERT INTO "points" VALUES(34,1,0,1.79575260065015983581e+09,0.0);
INSERT INTO "points" VALUES(34,2,0,1.79575260166984987256e+09,4551196.3);
INSERT INTO "points" VALUES(34,3,0,1.79575260269776177408e+09,5408821.692);
INSERT INTO "points" VALUES(34,4,0,1.79575260369909310339e+09,0.0);
INSERT INTO "points" VALUES(35,0,0,1.79575259961367654799e+09,0.0);
INSERT INTO "points" VALUES(35,1,0,1.79575260065015983581e+09,0.0);
INSERT INTO "points" VALUES(35,2,0,1.79575260166984987256e+09,31360.026);
INSERT INTO "points" VALUES(35,3,0,1.79575260269776177408e+09,20261.18);
INSERT INTO "points" VALUES(35,4,0,1.79575260369909310339e+09,0.0);
INSERT INTO "points" VALUES(36,0,0,1.79575259961367654799e+09,25276059648.0);
INSERT INTO "points" VALUES(36,1,0,1.79575260065015983581e+09,25276059648.0);
INSERT INTO "points" VALUES(36,2,0,1.79575260166984987256e+09,25276059648.0);
INSERT INTO "points" VALUES(36,3,0,1.79575260269776177408e+09,25276059648.0);
INSERT INTO "points" VALUES(36,4,0,1.79575260369909310339e+09,25276059648.0);
INSERT INTO "points" VALUES(37,0,0,1.79575259961367654799e+09,1662976.0);
INSERT INTO "points" VALUES(37,1,0,1.79575260065015983581e+09,1662976.0);
INSERT INTO "points" VALUES(37,2,0,1.79575260166984987256e+09,1662976.0);
INSERT INTO "points" VALUES(37,3,0,1.79575260269776177408e+09,1662976.0);
INSERT INTO "points" VALUES(37,4,0,1.79575260369909310339e+09,1662976.0);
INSERT INTO "points" VALUES(38,0,0,1.79575259961367654799e+09,0.0);
INSERT INTO "points" VALUES(38,1,0,1.79575260065015983581e+09,0.0);
INSERT INTO "points" VALUES(38,2,0,1.79575260166984987256e+09,0.0);
INSERT INTO "points" VALUES(38,3,0,1.79575260269776177408e+09,0.0);
INSERT INTO "points" VALUES(38,4,0,1.79575260369909310339e+09,0.0);
INSERT INTO "points" VALUES(39,0,0,1.79575259961367654799e+09,0.0);
INSERT INTO "points" VALUES(39,1,0,1.79575260065015983581e+09,0.0);
INSERT INTO "points" VALUES(39,2,0,1.79575260166984987256e+09,0.0);
INSERT INTO "points" VALUES(39,3,0,1.79575260269776177408e+09,0.0);
INSERT INTO "points" VALUES(39,4,0,1.79575260369909310339e+09,0.0);
INSERT INTO "points" VALUES(40,0,0,1.79575259961367654799e+09,1662976.0);
INSERT INTO "points" VALUES(40,1,0,1.79575260065015983581e+09,1662976.0);
INSERT INTO "points" VALUES(40,2,0,1.79575260166984987256e+09,1662976.0);
INSERT INTO "points" VALUES(40,3,0,1.79575260269776177408e+09,1662976.0);
INSERT INTO "points" VALUES(40,4,0,1.79575260369909310339e+09,1662976.0);
INSERT INTO "points" VALUES(41,0,0,1.79575259961367654799e+09,0.0);
INSERT INTO "points" VALUES(41,1,0,1.79575260065015983581e+09,0.0);
INSERT INTO "points" VALUES(41,2,0,1.79575260166984987256e+09,0.0);
INSERT INTO "points" VALUES(41,3,0,1.79575260269776177408e+09,0.0);
INSERT INTO "points" VALUES(41,4,0,1.79575260369909310339e+09,0.0);
INSERT INTO "points" VALUES(42,0,0,1.79575259961367654799e+09,4030.641);
INSERT INTO "points" VALUES(42,1,0,1.79575260065015983581e+09,0.0);
INSERT INTO "points" VALUES(42,2,0,1.79575260166984987256e+09,0.0);
INSERT INTO "points" VALUES(42,3,0,1.79575260269776177408e+09,0.0);
INSERT INTO "points" VALUES(42,4,0,1.79575260369909310339e+09,0.0);
CREATE TABLE schedules (
	name VARCHAR(255) NOT NULL, 
	spec JSON NOT NULL, 
	submission JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	created_by VARCHAR(255) NOT NULL, 
	enabled INTEGER NOT NULL, 
	next_at FLOAT, 
	last JSON, 
	PRIMARY KEY (name)
);
INSERT INTO "schedules" VALUES('nightly','{"name": "nightly", "trigger": {"type": "cron", "expression": "0 3 * * *"}, "create_job": "plain.yml"}','{"spec": {"display_name": "A plain job", "description": "With what most jobs have: ''quotes'', \u00fcmlauts", "experiment_name": "birds", "tags": {"team": "vision"}, "inputs": {"words": {"type": "uri_file", "path": "azureml:words:1"}, "lr": 0.1}, "resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}, "metrics": {"loss": "loss: ([0-9.]+)"}, "command": "python train.py ${{inputs.words}} --lr ${{inputs.lr}}", "code": "@ROOT@/code", "state": "plain"}, "base": {"HOME": "@ROOT@", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8", "TMPDIR": "@ROOT@", "PATH": "@ROOT@/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "@ROOT@/venv"}, "tools": {}, "code": "3bf12cfb02b7fe267068eb49309d187b5cdbcdb38fc979bae24ac90d2df3edf8", "diff": ""}',1.79575259060726761814e+09,'owner',0,1795834800.0,'null');
CREATE TABLE series (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	attempt INTEGER NOT NULL, 
	node INTEGER NOT NULL, 
	rank INTEGER, 
	gpu INTEGER, 
	length INTEGER NOT NULL, 
	step BIGINT, 
	at FLOAT, 
	value FLOAT, 
	packed INTEGER DEFAULT '0' NOT NULL, 
	leads INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "series" VALUES(1,1,'resource','node_cpu',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,100.0,1,0);
INSERT INTO "series" VALUES(2,1,'resource','node_memory',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,4929728512.0,1,0);
INSERT INTO "series" VALUES(3,1,'resource','node_memory_total',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(4,1,'resource','node_disk_read',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,151711.176,1,0);
INSERT INTO "series" VALUES(5,1,'resource','node_disk_write',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,5916735.851,1,0);
INSERT INTO "series" VALUES(6,1,'resource','net_in',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,0.0,1,0);
INSERT INTO "series" VALUES(7,1,'resource','net_out',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,0.0,1,0);
INSERT INTO "series" VALUES(8,1,'resource','memory_total',1,1,NULL,NULL,1,0,1.79575256576631402975e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(9,1,'metric','loss',1,0,0,NULL,3,2,1.79575256549373435972e+09,3.33333333333333314829e-01,3,1);
INSERT INTO "series" VALUES(10,1,'resource','node_cpu',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,100.0,1,0);
INSERT INTO "series" VALUES(11,1,'resource','node_memory',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,4913045504.0,1,0);
INSERT INTO "series" VALUES(12,1,'resource','node_memory_total',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(13,1,'resource','node_disk_read',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,144400.112,1,0);
INSERT INTO "series" VALUES(14,1,'resource','node_disk_write',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,5701616.537,1,0);
INSERT INTO "series" VALUES(15,1,'resource','net_in',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,0.0,1,0);
INSERT INTO "series" VALUES(16,1,'resource','net_out',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,0.0,1,0);
INSERT INTO "series" VALUES(17,1,'resource','memory_total',1,0,NULL,NULL,1,0,1.79575256577585244178e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(18,2,'metric','loss',1,0,0,NULL,3,2,1.79575256902916073793e+09,3.33333333333333314829e-01,3,1);
INSERT INTO "series" VALUES(19,2,'resource','node_cpu',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,100.0,1,0);
INSERT INTO "series" VALUES(20,2,'resource','node_memory',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,4889448448.0,1,0);
INSERT INTO "series" VALUES(21,2,'resource','node_memory_total',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(22,2,'resource','node_disk_read',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,9647831.662,1,0);
INSERT INTO "series" VALUES(23,2,'resource','node_disk_write',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,97716.053,1,0);
INSERT INTO "series" VALUES(24,2,'resource','net_in',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,0.0,1,0);
INSERT INTO "series" VALUES(25,2,'resource','net_out',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,0.0,1,0);
INSERT INTO "series" VALUES(26,2,'resource','memory_total',1,0,NULL,NULL,1,0,1.79575256928356075288e+09,25276059648.0,1,0);
INSERT INTO "series" VALUES(27,5,'metric','loss',1,0,0,NULL,2,1,1.79575257276116085052e+09,2.64782033281265816171e-01,2,1);
INSERT INTO "series" VALUES(28,4,'metric','loss',1,0,0,NULL,2,1,1.79575257248116087918e+09,9.19390639360659345236e-01,2,1);
INSERT INTO "series" VALUES(29,10,'resource','node_cpu',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,100.0,0,0);
INSERT INTO "series" VALUES(30,10,'resource','node_memory',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,4683550720.0,0,0);
INSERT INTO "series" VALUES(31,10,'resource','node_memory_total',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,25276059648.0,0,0);
INSERT INTO "series" VALUES(32,10,'resource','node_disk_read',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,139477.087,0,0);
INSERT INTO "series" VALUES(33,10,'resource','node_disk_write',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,31880.477,0,0);
INSERT INTO "series" VALUES(34,10,'resource','net_in',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,0.0,0,0);
INSERT INTO "series" VALUES(35,10,'resource','net_out',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,0.0,0,0);
INSERT INTO "series" VALUES(36,10,'resource','memory_total',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,25276059648.0,0,0);
INSERT INTO "series" VALUES(37,10,'resource','memory',1,0,0,NULL,5,0,1.79575260369909310339e+09,1662976.0,0,0);
INSERT INTO "series" VALUES(38,10,'resource','cpu',1,0,0,NULL,5,0,1.79575260369909310339e+09,0.0,0,0);
INSERT INTO "series" VALUES(39,10,'resource','cpu',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,0.0,0,0);
INSERT INTO "series" VALUES(40,10,'resource','memory',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,1662976.0,0,0);
INSERT INTO "series" VALUES(41,10,'resource','disk_read',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,0.0,0,0);
INSERT INTO "series" VALUES(42,10,'resource','disk_write',1,0,NULL,NULL,5,0,1.79575260369909310339e+09,0.0,0,0);
CREATE TABLE settings (
	"key" VARCHAR(63) NOT NULL, 
	value JSON NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('endpoint.keys','{"birds": {"keys": ["primary", "secondary"], "value": "gAAAAABrCQKRsJ4GknpbKagZSR22BYFkibh4p0udEfKFAZQcNeA5nuxOGgl0V4b2E65jo5Ptt7o94myAz7hER8dqKh1EqgccaTYemxQwgehFi2HUj9ZyvkuiA14IdoBtyRuK6KLeJI11m4MQs5p0c91FdBY7qMlBHTlCuM36wnKlH5Qcr_CJI-Tq4f4KPZmAA_1haQ5O7hjBP9w9JqzC9aiptDmo_PqB-m8yNvTSfZkLpvSZKk7d0eo="}}');
INSERT INTO "settings" VALUES('endpoints','{"birds": {"name": "birds", "spec": {"name": "birds", "auth_mode": "key"}, "keys": ["871e49b1f59d05fb98f44daf6dae4784633fde4ca7e571ee79a20df9a41777fa", "f3878c48ff1930db196e2815a2faf956cdac039378c722ac8483962f33ca1c88"], "created_at": 1795752593.9639337, "created_by": "owner"}}');
INSERT INTO "settings" VALUES('serve.port',34269);
INSERT INTO "settings" VALUES('compute.map','{"gpu-cluster": "local"}');
INSERT INTO "settings" VALUES('data.map','{"s3://old/": "@ROOT@/data/"}');
INSERT INTO "settings" VALUES('secrets','{"birds": {"keys": ["access_key_id", "secret_access_key"], "value": "gAAAAABrCQKV6_HrI9kDlLcWd4K-Y7Xc_y62Cwk6VzrJJO9SHsfMMdJ63maqpJztk8ZqrmNtEEI7FnbW-M-WcZv74lV0xtx8vck7MutOKz4FzJ8HlAy8sq_dGFr0MmlZRlqM5pYTY2QDnlmTV4ML-rAE-kK1WiZYeR7xCYREB8NHdPsLMHvKUmo="}}');
INSERT INTO "settings" VALUES('datastores','{"birds": {"name": "birds", "type": "s3", "bucket": "birds", "prefix": "v2"}}');
CREATE TABLE step_results (
	job_id INTEGER NOT NULL, 
	step VARCHAR(600) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	parts JSON NOT NULL, 
	outputs JSON NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "step_results" VALUES(7,'allranks-0.1.0/make','3e42c6d95308b7832b32cb6f593b7ebfc504e6d6f33e7c225a1e6e46b19dfe4f','{"the command": "echo made > ${{outputs.made}}/file", "the code": "", "the environment": "89156902d04196e69719efae08e829858449c2490195b5b3fbb8e2b30ce2988f [(''HOME'', ''@ROOT@''), (''LOGNAME'', ''ann''), (''PATH'', ''@ROOT@/venv/bin:/usr/bin:/bin''), (''USER'', ''ann''), (''VIRTUAL_ENV'', ''@ROOT@/venv'')]", "the variables": "{}", "the parameters": "{}", "the metrics": "[]", "the settings": "{\"chiefs\":0,\"current\":null,\"distribution\":\"none\",\"evaluators\":0,\"fresh_work\":false,\"gpus\":0,\"inherits\":false,\"inside\":\"\",\"may_send\":false,\"nodes\":1,\"options\":{},\"parameter_servers\":0,\"procs\":1,\"sends_files\":false,\"services\":[],\"state\":\"\"}", "the outputs": "[[\"made\",false,\"\",\"rw_mount\"]]"}','{"made": "content 319f1e6a959cb3bc3e44344577ee98320563973bff83c23b6a8fb8575731b0a5"}');
INSERT INTO "step_results" VALUES(8,'allranks-0.1.0/use','6ae47dea91d889a41e1f2dec53836fce497ad557eb300642c129c296a7c6eb0d','{"the command": "cat ${{inputs.made}}/file", "the code": "", "the environment": "89156902d04196e69719efae08e829858449c2490195b5b3fbb8e2b30ce2988f [(''HOME'', ''@ROOT@''), (''LOGNAME'', ''ann''), (''PATH'', ''@ROOT@/venv/bin:/usr/bin:/bin''), (''USER'', ''ann''), (''VIRTUAL_ENV'', ''@ROOT@/venv'')]", "the variables": "{}", "the parameters": "{}", "the metrics": "[]", "the settings": "{\"chiefs\":0,\"current\":null,\"distribution\":\"none\",\"evaluators\":0,\"fresh_work\":false,\"gpus\":0,\"inherits\":false,\"inside\":\"\",\"may_send\":false,\"nodes\":1,\"options\":{},\"parameter_servers\":0,\"procs\":1,\"sends_files\":false,\"services\":[],\"state\":\"\"}", "the outputs": "[]", "the input made": "[null,\"content 319f1e6a959cb3bc3e44344577ee98320563973bff83c23b6a8fb8575731b0a5\",\"ro_mount\",false,false]"}','{}');
CREATE INDEX jobs_live ON jobs (live);
CREATE INDEX jobs_list ON jobs (parent, id, experiment, status, name, created_at, started_at, ended_at);
CREATE UNIQUE INDEX jobs_parent ON jobs (parent, number);
CREATE UNIQUE INDEX assets_one ON assets (kind, name, version);
CREATE INDEX events_job ON events (job_id, id);
CREATE INDEX step_results_step ON step_results (step, job_id);
CREATE INDEX step_results_fingerprint ON step_results (fingerprint);
CREATE INDEX series_job ON series (job_id, kind, attempt, node);
CREATE INDEX series_of_metric ON series (name, job_id, value) WHERE leads = 1;
CREATE INDEX series_by_value ON series (name, value, job_id) WHERE leads = 1;
CREATE INDEX series_unpacked ON series (job_id) WHERE packed < length;
COMMIT;
